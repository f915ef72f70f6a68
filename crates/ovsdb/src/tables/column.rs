//! Rust types of column values.

use std::collections::{BTreeMap, BTreeSet};

use crate::schema::{AtomType, ColumnType};
use crate::value::{Atom, Datum, DecodeError, Decoded, RowRef, Uuid};

/// A Rust type for the value of a column.
pub trait ColumnValue: Sized {
    /// The OVSDB type of such a column.
    const TYPE: ColumnType;

    /// Converts the value of the column.
    fn read(datum: &Datum) -> Decoded<Self>;
}

/// A Rust type for one atom: a scalar column, or an element of a set or map.
pub trait Element: Sized {
    /// The OVSDB type of the atom.
    const ATOM: AtomType;
    /// The type to write: the same type, but a reference may name a row that has no id yet.
    type Written;

    /// Converts the atom; `None` if it has another type.
    fn read_atom(atom: &Atom) -> Option<Self>;

    /// Converts a value to the atom to write.
    fn atom(written: Self::Written) -> Atom;
}

/// A value that a column of type `C` can be set to.
pub trait IntoColumn<C> {
    /// Converts to the value to write.
    fn into_datum(self) -> Datum;
}

impl<E: Element> ColumnValue for E {
    const TYPE: ColumnType = ColumnType::scalar(E::ATOM);

    fn read(datum: &Datum) -> Decoded<Self> {
        element(datum.scalar().ok_or_else(|| unexpected("one value", datum))?)
    }
}

impl<E: Element> ColumnValue for Option<E> {
    const TYPE: ColumnType = ColumnType::optional(E::ATOM);

    fn read(datum: &Datum) -> Decoded<Self> {
        match (datum.scalar(), datum) {
            (Some(atom), _) => element(atom).map(Some),
            (None, Datum::Set(set)) if set.is_empty() => Ok(None),
            _ => Err(unexpected("one value or none", datum)),
        }
    }
}

impl<E: Element + Ord> ColumnValue for BTreeSet<E> {
    const TYPE: ColumnType = ColumnType::set(E::ATOM);

    fn read(datum: &Datum) -> Decoded<Self> {
        match datum {
            Datum::Set(set) => set.iter().map(element).collect(),
            Datum::Map(_) => Err(unexpected("a set", datum)),
        }
    }
}

impl<K: Element + Ord, V: Element> ColumnValue for BTreeMap<K, V> {
    const TYPE: ColumnType = ColumnType::map(K::ATOM, V::ATOM);

    fn read(datum: &Datum) -> Decoded<Self> {
        match datum {
            Datum::Map(map) => map.iter().map(|(key, value)| Ok((element(key)?, element(value)?))).collect(),
            Datum::Set(_) => Err(unexpected("a map", datum)),
        }
    }
}

impl<E: Element, W: Into<E::Written>> IntoColumn<E> for W {
    fn into_datum(self) -> Datum {
        E::atom(self.into()).into()
    }
}

impl<E: Element, W: Into<E::Written>> IntoColumn<Option<E>> for Option<W> {
    fn into_datum(self) -> Datum {
        self.map(|written| E::atom(written.into())).into_iter().collect()
    }
}

impl<E: Element, W: Into<E::Written>, I: IntoIterator<Item = W>> IntoColumn<BTreeSet<E>> for I {
    fn into_datum(self) -> Datum {
        self.into_iter().map(|written| E::atom(written.into())).collect()
    }
}

impl<K, V, A, B, I> IntoColumn<BTreeMap<K, V>> for I
where
    K: Element,
    V: Element,
    A: Into<K::Written>,
    B: Into<V::Written>,
    I: IntoIterator<Item = (A, B)>,
{
    fn into_datum(self) -> Datum {
        self.into_iter().map(|(key, value)| (K::atom(key.into()), V::atom(value.into()))).collect()
    }
}

impl Element for i64 {
    const ATOM: AtomType = AtomType::Integer;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        match atom {
            Atom::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    fn atom(written: Self) -> Atom {
        Atom::Integer(written)
    }
}

impl Element for u16 {
    const ATOM: AtomType = AtomType::Integer;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        i64::read_atom(atom)?.try_into().ok()
    }

    fn atom(written: Self) -> Atom {
        Atom::Integer(written.into())
    }
}

impl Element for u32 {
    const ATOM: AtomType = AtomType::Integer;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        i64::read_atom(atom)?.try_into().ok()
    }

    fn atom(written: Self) -> Atom {
        Atom::Integer(written.into())
    }
}

impl Element for bool {
    const ATOM: AtomType = AtomType::Boolean;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        match atom {
            Atom::Boolean(boolean) => Some(*boolean),
            _ => None,
        }
    }

    fn atom(written: Self) -> Atom {
        Atom::Boolean(written)
    }
}

impl Element for String {
    const ATOM: AtomType = AtomType::String;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        match atom {
            Atom::String(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn atom(written: Self) -> Atom {
        Atom::String(written)
    }
}

impl Element for Uuid {
    const ATOM: AtomType = AtomType::Uuid;
    type Written = RowRef;

    fn read_atom(atom: &Atom) -> Option<Self> {
        match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        }
    }

    fn atom(written: RowRef) -> Atom {
        written.into()
    }
}

fn element<E: Element>(atom: &Atom) -> Decoded<E> {
    let expected = match E::ATOM {
        AtomType::Integer => "an integer in range",
        AtomType::Real => "a real",
        AtomType::Boolean => "a boolean",
        AtomType::String => "a known string",
        AtomType::Uuid => "a UUID",
    };
    E::read_atom(atom).ok_or_else(|| DecodeError::unexpected(expected, &atom.encode()))
}

pub(super) fn unexpected(expected: &'static str, datum: &Datum) -> DecodeError {
    DecodeError::unexpected(expected, &datum.encode())
}
