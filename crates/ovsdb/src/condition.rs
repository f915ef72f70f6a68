//! Choosing rows.

use serde_json::{Value, json};

use crate::value::{Datum, NamedUuid, RowRef, Uuid};

/// How a column is compared with a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Function {
    /// Less; numbers only.
    Less,
    /// Less or equal; numbers only.
    LessOrEqual,
    /// The same value.
    Equal,
    /// Another value.
    NotEqual,
    /// Greater or equal; numbers only.
    GreaterOrEqual,
    /// Greater; numbers only.
    Greater,
    /// Holds all the given elements.
    Includes,
    /// Holds none of the given elements.
    Excludes,
}

/// One test of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Condition {
    /// The column that is looked at.
    pub column: String,
    /// How it is compared.
    pub function: Function,
    /// With what.
    pub value: Datum,
}

/// The rows of a table that pass every one of these tests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Where(Vec<Condition>);

impl Function {
    /// The function on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }
}

impl Condition {
    /// A test of a column.
    pub fn new(column: &str, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), function, value: value.into() }
    }

    /// Passes where the column has this value.
    pub fn equal(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// Passes where the column holds all these elements.
    pub fn includes(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// The condition as JSON.
    pub fn encode(&self) -> Value {
        json!([self.column, self.function.as_str(), self.value.encode()])
    }
}

impl Where {
    /// Every row of the table.
    pub const EVERY_ROW: Self = Self(vec![]);

    /// The rows with this name.
    pub fn named(name: &str) -> Self {
        Condition::equal("name", name).into()
    }

    /// The tests as JSON.
    pub fn encode(&self) -> Value {
        self.0.iter().map(Condition::encode).collect()
    }
}

impl From<Condition> for Where {
    fn from(condition: Condition) -> Self {
        Self(vec![condition])
    }
}

impl From<Vec<Condition>> for Where {
    fn from(conditions: Vec<Condition>) -> Self {
        Self(conditions)
    }
}

impl<const N: usize> From<[Condition; N]> for Where {
    fn from(conditions: [Condition; N]) -> Self {
        Self(conditions.into())
    }
}

impl From<RowRef> for Where {
    fn from(row: RowRef) -> Self {
        Condition::equal("_uuid", row).into()
    }
}

impl From<Uuid> for Where {
    fn from(uuid: Uuid) -> Self {
        RowRef::from(uuid).into()
    }
}

impl From<&NamedUuid> for Where {
    fn from(named: &NamedUuid) -> Self {
        RowRef::from(named).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_triples() {
        let every = Where::from([
            Condition::equal("name", "br-int"),
            Condition::new("ofport", Function::GreaterOrEqual, 1),
            Condition::includes("external_ids", Datum::from_iter([("k", "v")])),
        ]);
        assert_eq!(
            every.encode(),
            json!([["name", "==", "br-int"], ["ofport", ">=", 1], ["external_ids", "includes", ["map", [["k", "v"]]]]])
        );
        assert_eq!(Where::EVERY_ROW.encode(), json!([]));
        assert_eq!(Where::from(Uuid::NIL).encode(), json!([["_uuid", "==", ["uuid", Uuid::NIL.to_string()]]]));
    }
}
