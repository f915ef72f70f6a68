//! A table of objects by id.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use crate::ids::Id;

/// Objects by id. The id of a removed object is reused; until then, its place has the default value.
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
    /// Adds an object, and returns its new id.
    pub fn insert(&mut self, object: T) -> I {
        if let Some(number) = self.free.pop() {
            self.places[number as usize] = object;
            return I::new(number);
        }
        // Four billion objects do not fit into memory.
        let number = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(object);
        I::new(number)
    }

    /// Removes an object and frees its id.
    pub fn remove(&mut self, id: I) -> T {
        self.free.push(id.number());
        std::mem::take(&mut self.places[id.number() as usize])
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All places with their ids; free ones have the default value.
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
    fn the_id_of_a_removed_object_is_reused() {
        let mut slab: Slab<Thing, &str> = Slab::default();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!(slab.remove(a), "a");
        assert_eq!((slab[a], slab[b], slab.len()), ("", "b", 1));
        assert_eq!(slab.insert("c"), a);
        assert_eq!(slab.places().map(|(_, object)| *object).collect::<Vec<_>>(), ["c", "b"]);
    }
}
