//! For tests only: sends the same requests to two Kubernetes API servers, and compares the answers.
//!
//! *Role.* The requests are data, in `e2e/compat/steps`: an [`Area`] is a list of [`Step`]s that run in order in a
//! Namespace of their own. [`run`] sends them to a [`Server`] and returns the [`Answer`]s, in which values that differ
//! between runs (uids, times, revisions, generated names, allocated addresses) are replaced by placeholders. The
//! answers of the real kube-apiserver are in `e2e/compat/golden`; [`check`] runs an area against any server and
//! compares. [`kubectl`] does the same for command lines.
//!
//! *Invariants.* Placeholders are numbered by first appearance: equal values stay equal, different ones stay different.
//! Values of a request are compared literally. Each accepted difference has a reason ([`Allowance`]), and an allowance
//! that is no longer needed is reported.
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
