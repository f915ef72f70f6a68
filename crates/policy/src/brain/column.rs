//! A table over ids that another table assigns.

use std::marker::PhantomData;

use selector::Id;

/// Values by id. Ids come from a [`Slab`](selector::Slab) of another stage; an id without a value has the default.
#[derive(Clone, Debug)]
pub(super) struct Column<I, T> {
    values: Vec<T>,
    kind: PhantomData<I>,
}

impl<I, T> Default for Column<I, T> {
    fn default() -> Self {
        Self { values: Vec::new(), kind: PhantomData }
    }
}

impl<I: Id, T: Default> Column<I, T> {
    /// The value of an id, if the column has grown that far.
    pub(super) fn get(&self, id: I) -> Option<&T> {
        self.values.get(id.number() as usize)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.values.get_mut(id.number() as usize)
    }

    /// The value of an id. Grows the column if needed.
    pub(super) fn slot(&mut self, id: I) -> &mut T {
        let place = id.number() as usize;
        if place >= self.values.len() {
            // By a quarter, not to twice the size: columns have one entry per Node or selection for good.
            let capacity = self.values.capacity();
            if place >= capacity {
                self.values.reserve_exact((place + 1).max(capacity + capacity / 4) - self.values.len());
            }
            self.values.resize_with(place + 1, T::default);
        }
        &mut self.values[place]
    }

    /// All values, defaults included.
    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        (0..).map(I::new).zip(&self.values)
    }
}
