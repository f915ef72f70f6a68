//! Atoms: the elements of sets and maps.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::uuid::Uuid;
use super::{DecodeError, Decoded, tagged};

/// One value of a base type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Atom {
    /// A signed integer of 64 bits.
    Integer(i64),
    /// A finite floating-point number.
    Real(Real),
    /// Either true or false.
    Boolean(bool),
    /// A text in UTF-8.
    String(String),
    /// A row, by its id.
    Uuid(Uuid),
    /// A row that the same transaction inserts.
    NamedUuid(NamedUuid),
}

/// A finite number with a single zero, so that numbers have a total order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Real(f64);

/// Stands for the id of a row that the same transaction inserts; made by [`crate::transaction::Transaction::insert`].
///
/// It is valid in that transaction only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamedUuid {
    name: String,
    operation: Option<usize>,
}

/// A reference to a row: one that exists, or one that the same transaction inserts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RowRef {
    /// A row of the database.
    Existing(Uuid),
    /// A row of this transaction.
    Inserted(NamedUuid),
}

impl Atom {
    /// Decodes an atom; numbers with a fraction or exponent are reals, others integers.
    pub fn decode(value: &Value) -> Decoded<Self> {
        let unexpected = || DecodeError::unexpected("an atom", value);
        match value {
            Value::Bool(boolean) => Ok(Self::Boolean(*boolean)),
            Value::String(text) => Ok(Self::String(text.clone())),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Ok(Self::Integer(integer)),
                (None, Some(real)) if number.is_f64() => Real::new(real).map(Self::Real).ok_or_else(unexpected),
                _ => Err(unexpected()),
            },
            Value::Array(_) => match tagged(value) {
                Some(("uuid", Value::String(text))) => {
                    text.parse().map(Self::Uuid).map_err(|_| DecodeError::unexpected("a UUID", value))
                }
                Some(("named-uuid", Value::String(name))) => {
                    Ok(Self::NamedUuid(NamedUuid { name: name.clone(), operation: None }))
                }
                _ => Err(unexpected()),
            },
            Value::Null | Value::Object(_) => Err(unexpected()),
        }
    }

    /// Encodes the atom as JSON.
    pub fn encode(&self) -> Value {
        match self {
            Self::Integer(integer) => json!(integer),
            Self::Real(real) => json!(real.0),
            Self::Boolean(boolean) => json!(boolean),
            Self::String(text) => json!(text),
            Self::Uuid(uuid) => json!(["uuid", uuid.to_string()]),
            Self::NamedUuid(named) => json!(["named-uuid", named.name]),
        }
    }
}

impl Real {
    /// The number zero, of which there is one.
    pub const ZERO: Self = Self(0.0);

    /// The number, unless it is infinite or not a number.
    pub fn new(number: f64) -> Option<Self> {
        // Adding zero turns -0.0 into 0.0.
        number.is_finite().then_some(Self(number + 0.0))
    }

    /// The number as a float.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl NamedUuid {
    /// The name for the row that operation `operation` of a transaction inserts.
    pub(crate) fn of_operation(operation: usize) -> Self {
        Self { name: format!("row{operation}"), operation: Some(operation) }
    }

    /// The name as the server gets it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operation of the transaction that inserts the row; `None` for a decoded name.
    pub fn operation(&self) -> Option<usize> {
        self.operation
    }
}

impl From<i64> for Atom {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<bool> for Atom {
    fn from(boolean: bool) -> Self {
        Self::Boolean(boolean)
    }
}

impl From<Real> for Atom {
    fn from(real: Real) -> Self {
        Self::Real(real)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Self::Uuid(uuid)
    }
}

impl From<NamedUuid> for Atom {
    fn from(named: NamedUuid) -> Self {
        Self::NamedUuid(named)
    }
}

impl From<RowRef> for Atom {
    fn from(row: RowRef) -> Self {
        match row {
            RowRef::Existing(uuid) => Self::Uuid(uuid),
            RowRef::Inserted(named) => Self::NamedUuid(named),
        }
    }
}

impl From<Uuid> for RowRef {
    fn from(uuid: Uuid) -> Self {
        Self::Existing(uuid)
    }
}

impl From<NamedUuid> for RowRef {
    fn from(named: NamedUuid) -> Self {
        Self::Inserted(named)
    }
}

impl From<&NamedUuid> for RowRef {
    fn from(named: &NamedUuid) -> Self {
        Self::Inserted(named.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_zero_and_no_infinity() {
        assert_eq!(Real::new(-0.0).map(|real| real.get().to_bits()), Some(0));
        assert_eq!(Real::new(f64::NAN), None);
        assert_eq!(Real::new(f64::INFINITY), None);
        assert!(Real::new(-1.0) < Real::new(0.5));
    }
}
