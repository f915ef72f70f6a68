//! The simulator against the real switch.

#[cfg(test)]
mod abort;
#[cfg(test)]
#[path = "../../../pipeline/tests/it/client.rs"]
#[expect(dead_code, reason = "shared with the tests of `pipeline`, which need more of it")]
mod client;
#[cfg(test)]
#[path = "../../../pipeline/tests/it/cluster.rs"]
mod cluster;
#[cfg(test)]
mod compare;
#[cfg(test)]
mod conversation;
mod copies;
#[cfg(test)]
mod hash;
#[cfg(test)]
mod itself;
#[cfg(test)]
mod node;
#[cfg(test)]
mod random;
#[cfg(test)]
mod states;
