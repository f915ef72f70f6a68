//! Values of database columns and their JSON form on the wire.

mod atom;
mod uuid;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use thiserror::Error;

pub use self::atom::{Atom, NamedUuid, Real, RowRef};
pub use self::uuid::Uuid;

/// Why JSON could not be decoded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// Another value than expected.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What the decoder expected.
        expected: &'static str,
        /// The start of the value.
        found: String,
    },
    /// A set or map has the same element twice.
    #[error("{0} appears twice")]
    Duplicate(String),
    /// An error inside a named part.
    #[error("{place}: {source}")]
    At {
        /// Name of the part.
        place: String,
        /// The error inside the part.
        source: Box<DecodeError>,
    },
}

/// The result of a decoder.
pub type Decoded<T> = Result<T, DecodeError>;

/// The columns of a row, or some of them, by name.
pub type Row = BTreeMap<String, Datum>;

/// The value of one column: a set of atoms (a scalar is a set of one) or a map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Datum {
    /// Distinct atoms; a scalar is a set of one.
    Set(BTreeSet<Atom>),
    /// Pairs of atoms, by key.
    Map(BTreeMap<Atom, Atom>),
}

impl DecodeError {
    /// The error for `found` in place of `expected`; keeps only the start of `found`.
    pub fn unexpected(expected: &'static str, found: &Value) -> Self {
        const SHOWN: usize = 80;
        let text = found.to_string();
        let found = match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
            None => text,
        };
        Self::Unexpected { expected, found }
    }

    /// The same error, inside of `place`.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        Self::At { place: place.to_string(), source: Box::new(self) }
    }
}

impl Datum {
    /// The empty set, which is also the value of an empty optional column.
    pub const EMPTY: Self = Self::Set(BTreeSet::new());

    /// Decodes a value without its type: numbers with a fraction or exponent are reals, others integers.
    pub fn decode(value: &Value) -> Decoded<Self> {
        let Some((tag, items)) = tagged(value) else {
            return Ok(Self::from(Atom::decode(value)?));
        };
        match tag {
            "set" => {
                let mut set = BTreeSet::new();
                for item in array(items)? {
                    if !set.insert(Atom::decode(item)?) {
                        return Err(DecodeError::Duplicate(item.to_string()));
                    }
                }
                Ok(Self::Set(set))
            }
            "map" => {
                let mut map = BTreeMap::new();
                for item in array(items)? {
                    let Some([key, value]) = item.as_array().map(Vec::as_slice) else {
                        return Err(DecodeError::unexpected("a pair", item));
                    };
                    if map.insert(Atom::decode(key)?, Atom::decode(value)?).is_some() {
                        return Err(DecodeError::Duplicate(key.to_string()));
                    }
                }
                Ok(Self::Map(map))
            }
            _ => Ok(Self::from(Atom::decode(value)?)),
        }
    }

    /// Encodes the value as JSON; a set of one is written as its atom.
    pub fn encode(&self) -> Value {
        match self {
            Self::Set(set) => match (set.first(), set.len()) {
                (Some(atom), 1) => atom.encode(),
                _ => json!(["set", set.iter().map(Atom::encode).collect::<Vec<_>>()]),
            },
            Self::Map(map) => {
                let pairs = map.iter().map(|(key, value)| json!([key.encode(), value.encode()]));
                json!(["map", pairs.collect::<Vec<_>>()])
            }
        }
    }

    /// The only atom of a set of one.
    pub fn scalar(&self) -> Option<&Atom> {
        match self {
            Self::Set(set) if set.len() == 1 => set.first(),
            Self::Set(_) | Self::Map(_) => None,
        }
    }

    /// The only atom of a set of one, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self.scalar() {
            Some(Atom::String(text)) => Some(text),
            _ => None,
        }
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Self::Set(BTreeSet::from([atom.into()]))
    }
}

impl<A: Into<Atom>> FromIterator<A> for Datum {
    fn from_iter<I: IntoIterator<Item = A>>(atoms: I) -> Self {
        Self::Set(atoms.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<Atom>, V: Into<Atom>> FromIterator<(K, V)> for Datum {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

/// Decodes the columns of a row object.
pub fn decode_row(value: &Value) -> Decoded<Row> {
    object(value)?
        .iter()
        .map(|(column, value)| Ok((column.clone(), Datum::decode(value).map_err(|error| error.at(column))?)))
        .collect()
}

/// Encodes the row as a JSON object.
pub fn encode_row(row: &Row) -> Value {
    row.iter().map(|(column, datum)| (column.clone(), datum.encode())).collect::<serde_json::Map<_, _>>().into()
}

/// The two parts of `["tag", rest]`.
pub(crate) fn tagged(value: &Value) -> Option<(&str, &Value)> {
    match value.as_array()?.as_slice() {
        [tag, rest] => Some((tag.as_str()?, rest)),
        _ => None,
    }
}

pub(crate) fn array(value: &Value) -> Decoded<&Vec<Value>> {
    value.as_array().ok_or_else(|| DecodeError::unexpected("an array", value))
}

pub(crate) fn object(value: &Value) -> Decoded<&serde_json::Map<String, Value>> {
    value.as_object().ok_or_else(|| DecodeError::unexpected("an object", value))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_wire_formats_of_the_rfc_are_decoded() {
        let uuid = "550e8400-e29b-41d4-a716-446655440000";
        for (json, datum) in [
            (json!(5), Datum::from(5)),
            (json!(0.5), Datum::from(Real::new(0.5).unwrap())),
            (json!(true), Datum::from(true)),
            (json!("x"), Datum::from("x")),
            (json!(["uuid", uuid]), Datum::from(uuid.parse::<Uuid>().unwrap())),
            (json!(["set", []]), Datum::EMPTY),
            (json!(["set", [1, 2]]), Datum::from_iter([1, 2])),
            (json!(["map", [["k", "v"]]]), Datum::from_iter([("k", "v")])),
        ] {
            assert_eq!(Datum::decode(&json).unwrap(), datum);
            assert_eq!(datum.encode(), json);
        }
        assert_eq!(Datum::decode(&json!(["set", [1]])).unwrap(), Datum::from(1));
    }

    #[test]
    fn values_that_the_rfc_forbids_are_rejected() {
        for json in [
            json!(null),
            json!({}),
            json!([]),
            json!(["set", 1]),
            json!(["set", [1, 1]]),
            json!(["set", [["set", []]]]),
            json!(["map", [[1, 2, 3]]]),
            json!(["map", [[1, 2], [1, 3]]]),
            json!(["uuid", "x"]),
            json!(["named-uuid", 1]),
            json!(18446744073709551615u64),
        ] {
            assert!(Datum::decode(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn an_error_shows_only_the_start_of_the_value() {
        let error = DecodeError::unexpected("an object", &json!("é".repeat(1000))).at("column");
        assert!(error.to_string().len() < 250, "{error}");
    }

    pub(crate) fn atom() -> impl Strategy<Value = Atom> {
        prop_oneof![
            any::<i64>().prop_map(Atom::from),
            any::<f64>().prop_filter_map("JSON has no infinity", |real| Real::new(real).map(Atom::Real)),
            any::<bool>().prop_map(Atom::from),
            ".{0,6}".prop_map(Atom::String),
            any::<u128>().prop_map(|bits| Uuid::from_bits(bits).into()),
        ]
    }

    pub(crate) fn datum() -> impl Strategy<Value = Datum> {
        prop_oneof![
            prop::collection::btree_set(atom(), 0..4).prop_map(Datum::Set),
            prop::collection::btree_map(atom(), atom(), 0..4).prop_map(Datum::Map),
        ]
    }

    proptest! {
        #[test]
        fn encode_then_decode_is_the_same_datum(datum in datum()) {
            let text = datum.encode().to_string();
            prop_assert_eq!(Datum::decode(&serde_json::from_str(&text).unwrap()).unwrap(), datum);
        }
    }
}
