//! For tests only: the same requests to two Kubernetes API servers, and what they answer differently.
//!
//! *Role.* The requests are data, in `e2e/compat/steps`: an [`Area`] is a list of [`Step`]s that run in order in a
//! Namespace of their own. [`run`] sends them to a [`Server`] and gives the [`Answer`]s, with what differs between any
//! two runs (uids, times, revisions, generated names, allocated addresses) replaced by words. What the real
//! kube-apiserver answers is kept in `e2e/compat/golden`; [`check`] runs an area against any server and compares.
//! [`kubectl`] does the same for command lines.
//!
//! *Invariants.* The words are numbered by first appearance, so that what was equal in an answer stays equal, and what
//! was different stays different. What a request gives itself is compared literally. Each accepted difference has a
//! reason ([`Allowance`]), and goes away when it is no longer one.
//!
//! *Not here.* Servers: a test starts one and describes it by a [`Server`].

mod answer;
mod area;
mod diff;
mod golden;
mod http;
pub mod kubectl;
mod normal;
mod run;
mod text;
mod vars;
mod yaml;

pub use answer::Answer;
pub use area::{Area, Step, areas};
pub use diff::{Allowance, Difference, Report, allowances, compare};
pub use golden::{check, golden, record};
pub use http::{Credential, Server};
pub use run::run;
