//! Label selectors: which objects a set of requirements on labels selects.
//!
//! *Role.* A [`Selector`] as it is written becomes one that can be asked, or an error that names the requirement. An [`Index`]
//! holds label sets and selectors, each once however many share it, and knows at any time which of them match.
//!
//! *Invariants.* Selectors that mean the same because their requirements are the same are equal, in whatever order they were
//! written, and have the same text; different ones have different texts. An empty selector selects everything. What is released
//! as often as it was acquired leaves nothing behind in an index. Nothing depends on the order of a hash table.
//!
//! *Not here.* What is selected, and what for (crate `policy`).

mod id_map;
mod ids;
mod index;
mod selector;
mod slab;

pub use id_map::{IdHasher, IdMap};
pub use ids::{Id, IdSet};
pub use index::{Index, LabelsId, SelectorId};
pub use selector::{InvalidSelector, Selector};
pub use slab::Slab;
