//! Types of columns, and the schema that a server reports.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::value::{Atom, Datum, DecodeError, Decoded, Real, Uuid, object};

/// The base types of RFC 7047.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AtomType {
    /// A signed integer of 64 bits.
    Integer,
    /// A finite floating-point number.
    Real,
    /// Either true or false.
    Boolean,
    /// A text in UTF-8.
    String,
    /// A row, by its id.
    Uuid,
}

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnType {
    /// Type of the elements, or of the keys of a map.
    pub key: AtomType,
    /// Type of the values, if it is a map.
    pub value: Option<AtomType>,
    /// Whether it may be empty.
    pub optional: bool,
    /// Whether it may have more than one element.
    pub many: bool,
}

/// The schema of a database, as a server reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DatabaseSchema {
    /// Name of the database.
    pub name: String,
    /// Version of the schema, `x.y.z`.
    pub version: String,
    /// Types of the columns, by table and column.
    pub tables: BTreeMap<String, BTreeMap<String, ColumnType>>,
}

impl ColumnType {
    /// The type of exactly one value.
    pub const fn scalar(key: AtomType) -> Self {
        Self { key, value: None, optional: false, many: false }
    }

    /// The type of an optional value.
    pub const fn optional(key: AtomType) -> Self {
        Self { key, value: None, optional: true, many: false }
    }

    /// The type of a set of values.
    pub const fn set(key: AtomType) -> Self {
        Self { key, value: None, optional: true, many: true }
    }

    /// The type of a map.
    pub const fn map(key: AtomType, value: AtomType) -> Self {
        Self { key, value: Some(value), optional: true, many: true }
    }

    /// The same type, but never empty.
    #[must_use]
    pub const fn non_empty(self) -> Self {
        Self { optional: false, ..self }
    }

    /// Whether values of the server's type `other` can be read as this type.
    ///
    /// A set of at least one can be read as a set of any number.
    pub fn reads(self, other: Self) -> bool {
        Self { optional: self.optional, ..other } == self && (self.many || other.optional == self.optional)
    }

    /// The default value of a column.
    pub fn default_datum(self) -> Datum {
        let zero = |of: AtomType| match of {
            AtomType::Integer => Atom::Integer(0),
            AtomType::Real => Atom::Real(Real::ZERO),
            AtomType::Boolean => Atom::Boolean(false),
            AtomType::String => Atom::String(String::new()),
            AtomType::Uuid => Atom::Uuid(Uuid::NIL),
        };
        match (self.optional, self.value) {
            (true, None) => Datum::EMPTY,
            (true, Some(_)) => Datum::Map(BTreeMap::new()),
            (false, None) => Datum::from(zero(self.key)),
            (false, Some(value)) => Datum::Map(BTreeMap::from([(zero(self.key), zero(value))])),
        }
    }

    /// Checks the type of a value that was decoded without it; integers of a real column become reals.
    pub fn coerce(self, datum: Datum) -> Decoded<Datum> {
        match (datum, self.value) {
            (Datum::Set(set), None) => {
                let set: BTreeSet<Atom> = set.into_iter().map(|atom| self.key.coerce(atom)).collect::<Decoded<_>>()?;
                Ok(Datum::Set(set))
            }
            (Datum::Map(map), Some(value)) => {
                let pair = |(k, v)| Ok((self.key.coerce(k)?, value.coerce(v)?));
                Ok(Datum::Map(map.into_iter().map(pair).collect::<Decoded<_>>()?))
            }
            (datum @ Datum::Map(_), None) => Err(DecodeError::unexpected("a set", &datum.encode())),
            (datum @ Datum::Set(_), Some(_)) => Err(DecodeError::unexpected("a map", &datum.encode())),
        }
    }

    /// The value after the `modify` update `change`: a new value where at most one fits, else a difference.
    ///
    /// Of a set, the difference holds the elements that are in only one of old and new. Of a map it holds the pairs that
    /// were removed, the pairs that were added, and the new pair for each key that kept its place but changed its value.
    #[must_use]
    pub fn modify(self, old: Datum, change: Datum) -> Datum {
        match (old, change) {
            (Datum::Set(old), Datum::Set(change)) if self.many => {
                Datum::Set(old.symmetric_difference(&change).cloned().collect())
            }
            (Datum::Map(mut map), Datum::Map(change)) if self.many => {
                for (key, value) in change {
                    if map.get(&key) == Some(&value) {
                        map.remove(&key);
                    } else {
                        map.insert(key, value);
                    }
                }
                Datum::Map(map)
            }
            (_, new) => new,
        }
    }

    fn decode(value: &Value) -> Decoded<Self> {
        let Some(object) = value.as_object() else {
            return Ok(Self::scalar(AtomType::decode(value)?));
        };
        let count = |name| object.get(name).map_or(Some(1), Value::as_u64);
        Ok(Self {
            key: AtomType::decode(object.get("key").unwrap_or(&Value::Null)).map_err(|error| error.at("key"))?,
            value: object.get("value").map(AtomType::decode).transpose().map_err(|error| error.at("value"))?,
            optional: count("min") == Some(0),
            many: count("max").is_none_or(|max| max > 1),
        })
    }
}

impl AtomType {
    fn decode(value: &Value) -> Decoded<Self> {
        let name = value.as_object().and_then(|object| object.get("type")).unwrap_or(value);
        match name.as_str() {
            Some("integer") => Ok(Self::Integer),
            Some("real") => Ok(Self::Real),
            Some("boolean") => Ok(Self::Boolean),
            Some("string") => Ok(Self::String),
            Some("uuid") => Ok(Self::Uuid),
            _ => Err(DecodeError::unexpected("a base type", value)),
        }
    }

    fn coerce(self, atom: Atom) -> Decoded<Atom> {
        #[expect(clippy::cast_precision_loss, reason = "the server prints a whole real without its fraction")]
        match (self, atom) {
            (Self::Real, Atom::Integer(integer)) => Ok(Real::new(integer as f64).unwrap_or(Real::ZERO).into()),
            (Self::Integer, atom @ Atom::Integer(_))
            | (Self::Real, atom @ Atom::Real(_))
            | (Self::Boolean, atom @ Atom::Boolean(_))
            | (Self::String, atom @ Atom::String(_))
            | (Self::Uuid, atom @ Atom::Uuid(_)) => Ok(atom),
            (_, atom) => Err(DecodeError::unexpected(self.name(), &atom.encode())),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::Real => "a real",
            Self::Boolean => "a boolean",
            Self::String => "a string",
            Self::Uuid => "a UUID",
        }
    }
}

impl DatabaseSchema {
    /// Decodes the reply to `get_schema`.
    pub fn decode(value: &Value) -> Decoded<Self> {
        let schema = object(value)?;
        let text = |name| schema.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut tables = BTreeMap::new();
        for (table, value) in member(value, "tables")? {
            let mut columns = BTreeMap::new();
            for (column, value) in member(value, "columns").map_err(|error| error.at(table))? {
                let column_type = ColumnType::decode(value.get("type").unwrap_or(&Value::Null))
                    .map_err(|error| error.at(format_args!("{table}.{column}")))?;
                columns.insert(column.clone(), column_type);
            }
            tables.insert(table.clone(), columns);
        }
        Ok(Self { name: text("name"), version: text("version"), tables })
    }
}

fn member<'a>(value: &'a Value, name: &'static str) -> Decoded<&'a serde_json::Map<String, Value>> {
    object(value.get(name).unwrap_or(&Value::Null)).map_err(|error| error.at(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NAMES: ColumnType = ColumnType::set(AtomType::String);
    const IDS: ColumnType = ColumnType::map(AtomType::String, AtomType::String);

    #[test]
    fn a_schema_gives_the_type_of_each_column() {
        let schema = DatabaseSchema::decode(&json!({"name": "db", "version": "1.2.3", "tables": {"T": {"columns": {
            "a": {"type": "integer"},
            "b": {"type": {"key": {"type": "string", "enum": ["set", ["x"]]}, "min": 0, "max": 1}},
            "c": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
            "d": {"type": {"key": {"type": "uuid", "refTable": "T"}, "min": 1, "max": "unlimited"}},
        }}}}))
        .unwrap();
        assert_eq!((schema.name.as_str(), schema.version.as_str()), ("db", "1.2.3"));
        let columns: Vec<_> = schema.tables["T"].values().copied().collect();
        assert_eq!(
            columns,
            [
                ColumnType::scalar(AtomType::Integer),
                ColumnType::optional(AtomType::String),
                ColumnType::map(AtomType::String, AtomType::Integer),
                ColumnType::set(AtomType::Uuid).non_empty(),
            ]
        );
    }

    #[test]
    fn an_invalid_schema_is_rejected_with_its_place() {
        let schema = json!({"tables": {"T": {"columns": {"a": {"type": "float"}}}}});
        let error = DatabaseSchema::decode(&schema).unwrap_err().to_string();
        assert_eq!(error, "T.a: expected a base type, found \"float\"");
        assert!(DatabaseSchema::decode(&json!({})).is_err());
    }

    #[test]
    fn a_real_column_takes_whole_numbers() {
        let real = ColumnType::scalar(AtomType::Real);
        assert_eq!(real.coerce(Datum::from(1)).unwrap(), Datum::from(Real::new(1.0).unwrap()));
        assert!(real.coerce(Datum::from("1")).is_err());
        assert!(IDS.coerce(Datum::EMPTY).is_err());
    }

    #[test]
    fn one_value_is_replaced_and_many_are_toggled() {
        let optional = ColumnType::optional(AtomType::Integer);
        assert_eq!(optional.modify(Datum::from(1), Datum::from(2)), Datum::from(2));
        assert_eq!(optional.modify(Datum::from(1), Datum::EMPTY), Datum::EMPTY);
        let set = NAMES.modify(Datum::from_iter(["a", "b"]), Datum::from_iter(["b", "c"]));
        assert_eq!(set, Datum::from_iter(["a", "c"]));
        let map = IDS.modify(
            Datum::from_iter([("gone", "1"), ("kept", "2"), ("changed", "3")]),
            Datum::from_iter([("gone", "1"), ("changed", "4"), ("new", "5")]),
        );
        assert_eq!(map, Datum::from_iter([("kept", "2"), ("changed", "4"), ("new", "5")]));
    }

    fn difference(old: &BTreeMap<u8, u8>, new: &BTreeMap<u8, u8>) -> Datum {
        let gone = old.iter().filter(|(key, _)| !new.contains_key(key));
        let put = new.iter().filter(|(key, value)| old.get(key) != Some(value));
        gone.chain(put).map(|(key, value)| (i64::from(*key), i64::from(*value))).collect()
    }

    proptest! {
        #[test]
        fn the_difference_of_two_maps_turns_one_into_the_other(
            old in prop::collection::btree_map(0u8..8, 0u8..3, 0..6),
            new in prop::collection::btree_map(0u8..8, 0u8..3, 0..6),
        ) {
            let datum = |map: &BTreeMap<u8, u8>| -> Datum {
                map.iter().map(|(key, value)| (i64::from(*key), i64::from(*value))).collect()
            };
            let ints = ColumnType::map(AtomType::Integer, AtomType::Integer);
            prop_assert_eq!(ints.modify(datum(&old), difference(&old, &new)), datum(&new));
        }
    }
}
