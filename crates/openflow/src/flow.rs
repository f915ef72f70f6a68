//! Flows: what is matched, what is done, and the messages that add, remove and list them.

/// The priority of a flow that gives none.
pub const DEFAULT_PRIORITY: u16 = 0x8000;
