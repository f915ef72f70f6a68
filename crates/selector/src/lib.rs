//! Label selectors: which objects a set of requirements on labels selects.
//!
//! *Role.* [`Selector`] parses a label selector, or returns an error that names the requirement. [`Index`] stores label sets and
//! selectors, each once and reference counted, and knows at any time which of them match.
//!
//! *Invariants.* Selectors with the same requirements in any order are equal and have the same text; different ones have different
//! texts. An empty selector selects everything. Entries that are released as often as they were acquired leave nothing in an index.
//! No result depends on the order of a hash table.
//!
//! *Not here.* The selected objects, and their use (crate `policy`).

mod id_map;
mod ids;
mod index;
mod selector;
mod slab;

pub use id_map::{IdHasher, IdMap};
pub use ids::{Id, IdSet};
pub use index::{Index, LabelsId, SelectorId};
pub use selector::{InvalidRequirement, InvalidSelector, Selector};
pub use slab::Slab;
