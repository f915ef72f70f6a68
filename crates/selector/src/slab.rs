//! Things by number.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use crate::ids::Id;

/// Things by number. A number that is free again is given to the next thing; until then, its place holds the default.
#[derive(Clone, Debug)]
pub struct Slab<I, T> {
    places: Vec<T>,
    free: Vec<u32>,
    kind: PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), kind: PhantomData }
    }
}

impl<I: Id, T: Default> Slab<I, T> {
    /// Gives a thing a number.
    pub fn insert(&mut self, thing: T) -> I {
        if let Some(number) = self.free.pop() {
            self.places[number as usize] = thing;
            return I::new(number);
        }
        // Four billion things do not fit into memory.
        let number = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(thing);
        I::new(number)
    }

    /// Takes a thing out; its number is free then.
    pub fn remove(&mut self, id: I) -> T {
        self.free.push(id.number());
        std::mem::take(&mut self.places[id.number() as usize])
    }

    /// How many things there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All places with their numbers, the free ones with the default.
    pub fn places(&self) -> impl Iterator<Item = (I, &T)> {
        (0..).map(I::new).zip(&self.places)
    }
}

impl<I: Id, T> Index<I> for Slab<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.places[id.number() as usize]
    }
}

impl<I: Id, T> IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.places[id.number() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::ids! {
        Thing;
    }

    #[test]
    fn a_number_is_given_again_when_its_thing_is_gone() {
        let mut slab: Slab<Thing, &str> = Slab::default();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!(slab.remove(a), "a");
        assert_eq!((slab[a], slab[b], slab.len()), ("", "b", 1));
        assert_eq!(slab.insert("c"), a);
        assert_eq!(slab.places().map(|(_, thing)| *thing).collect::<Vec<_>>(), ["c", "b"]);
    }
}
