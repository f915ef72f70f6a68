//! How a program of the house is watched.
//!
//! *Role.* [`log`] sets up structured logs; [`metrics`] writes what Prometheus reads; [`server`] answers questions over HTTP: is it
//! healthy, is it ready, its metrics, and whatever else the program has to tell.
//!
//! *Invariants.* The server listens on loopback, unless it is opened to everybody, as for load balancers. Health and readiness
//! are open to whoever is on the machine, as a kubelet's probes carry no token; everything else asks for the token in a file
//! that only root can read.
//!
//! *Not here.* What there is to tell: the programs know. The API of the controller, which others than the machine's own reach.

pub mod log;
pub mod metrics;
pub mod server;
