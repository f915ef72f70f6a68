//! Conditions that select rows.

use serde_json::{Value, json};

use crate::value::{Datum, NamedUuid, RowRef, Uuid};

/// The function of a condition, with its name in RFC 7047.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Function {
    /// `<`, for columns of numbers.
    Less,
    /// `<=`, for columns of numbers.
    LessOrEqual,
    /// `==`: the column has this value.
    Equal,
    /// `!=`: the column has another value.
    NotEqual,
    /// `>=`, for columns of numbers.
    GreaterOrEqual,
    /// `>`, for columns of numbers.
    Greater,
    /// `includes`: the column has all of these elements.
    Includes,
    /// `excludes`: the column has none of these elements.
    Excludes,
}

/// One condition on a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Condition {
    /// Name of the column to compare.
    pub column: String,
    /// How the column is compared with the value.
    pub function: Function,
    /// The value to compare with.
    pub value: Datum,
}

/// The rows of a table that meet all of these conditions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Where(Vec<Condition>);

impl Function {
    /// The name of the function in RFC 7047.
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
    /// A condition on a column.
    pub fn new(column: &str, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), function, value: value.into() }
    }

    /// Selects rows in which the column has this value.
    pub fn equal(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// Selects rows in which the column has all of these elements.
    pub fn includes(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// Encodes the condition as JSON.
    pub fn encode(&self) -> Value {
        json!([self.column, self.function.as_str(), self.value.encode()])
    }
}

impl Where {
    /// Selects every row of the table.
    pub const EVERY_ROW: Self = Self(vec![]);

    /// Selects rows by the column `name`.
    pub fn named(name: &str) -> Self {
        Condition::equal("name", name).into()
    }

    /// Encodes the conditions as JSON.
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
