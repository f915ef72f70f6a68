//! Typed ids, and sets of them.

use std::marker::PhantomData;

use roaring::RoaringBitmap;
use smallvec::SmallVec;

/// A number that identifies an object of one type.
pub trait Id: Copy + Eq + Ord {
    /// The id with this number.
    fn new(number: u32) -> Self;
    /// The number of this id.
    fn number(self) -> u32;
}

/// Defines types of ids.
#[macro_export]
macro_rules! ids {
    ($($(#[$doc:meta])* $visibility:vis $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        $visibility struct $name(u32);

        impl $crate::Id for $name {
            fn new(number: u32) -> Self {
                Self(number)
            }

            fn number(self) -> u32 {
                self.0
            }
        }
    )*};
}

/// Sets of up to this size are sorted lists, which are smaller than a bitmap.
const FEW: usize = 32;

/// A set of ids. Most sets have a few members and need no allocation; some have a hundred thousand.
#[derive(Clone, PartialEq, Debug)]
pub struct IdSet<I> {
    numbers: Numbers,
    kind: PhantomData<I>,
}

#[derive(Clone, PartialEq, Debug)]
enum Numbers {
    Few(SmallVec<[u32; 4]>),
    Many(Box<RoaringBitmap>),
}

impl<I> Default for IdSet<I> {
    fn default() -> Self {
        Self { numbers: Numbers::Few(SmallVec::new()), kind: PhantomData }
    }
}

impl<I: Id> IdSet<I> {
    /// Inserts an id. Returns whether it is new.
    pub fn insert(&mut self, id: I) -> bool {
        let number = id.number();
        match &mut self.numbers {
            Numbers::Few(list) => {
                let Err(place) = list.binary_search(&number) else { return false };
                if list.len() < FEW {
                    list.insert(place, number);
                } else {
                    let mut bitmap: RoaringBitmap = list.iter().copied().collect();
                    bitmap.insert(number);
                    self.numbers = Numbers::Many(Box::new(bitmap));
                }
                true
            }
            Numbers::Many(bitmap) => bitmap.insert(number),
        }
    }

    /// Removes an id. Returns whether it was in the set.
    pub fn remove(&mut self, id: I) -> bool {
        let number = id.number();
        match &mut self.numbers {
            Numbers::Few(list) => {
                let Ok(place) = list.binary_search(&number) else { return false };
                list.remove(place);
                if list.spilled() && list.len() <= list.inline_size() {
                    list.shrink_to_fit();
                }
                true
            }
            Numbers::Many(bitmap) => {
                let was_there = bitmap.remove(number);
                // Far below the size at which it became a bitmap, so that it does not go back and forth.
                if bitmap.len() <= FEW as u64 / 2 {
                    self.numbers = Numbers::Few(bitmap.iter().collect());
                }
                was_there
            }
        }
    }

    /// Whether the set contains an id.
    pub fn contains(&self, id: I) -> bool {
        match &self.numbers {
            Numbers::Few(list) => list.binary_search(&id.number()).is_ok(),
            Numbers::Many(bitmap) => bitmap.contains(id.number()),
        }
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Few(list) => list.len(),
            Numbers::Many(bitmap) => usize::try_from(bitmap.len()).unwrap_or(usize::MAX),
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All ids in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = I> + '_ {
        let (few, many) = match &self.numbers {
            Numbers::Few(list) => (Some(list.iter().copied()), None),
            Numbers::Many(bitmap) => (None, Some(bitmap.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten()).map(I::new)
    }
}

impl<I: Id> FromIterator<I> for IdSet<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut set = Self::default();
        set.extend(ids);
        set
    }
}

impl<I: Id> Extend<I> for IdSet<I> {
    fn extend<T: IntoIterator<Item = I>>(&mut self, ids: T) {
        for id in ids {
            self.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    ids! {
        Thing;
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_set_at_any_size(steps in vec((any::<bool>(), 0u32..120), 0..400)) {
            let (mut set, mut expected) = (IdSet::<Thing>::default(), BTreeSet::new());
            for (insert, number) in steps {
                let id = Thing(number);
                if insert {
                    prop_assert_eq!(set.insert(id), expected.insert(id));
                } else {
                    prop_assert_eq!(set.remove(id), expected.remove(&id));
                }
                prop_assert_eq!(set.len(), expected.len());
                prop_assert_eq!(set.contains(id), expected.contains(&id));
                prop_assert!(set.iter().eq(expected.iter().copied()));
            }
        }
    }
}
