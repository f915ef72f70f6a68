//! What the long-running programs share: start and end, logs, metrics, and an HTTP server for probes.
//!
//! *Role.* [`daemon`] loads the configuration, begins the log and waits for signals; [`log`] sets up structured logs; [`metrics`] renders Prometheus metrics; [`server`] serves health, readiness,
//! metrics and further read-only paths of a program over HTTP.
//!
//! *Invariants.* The server listens on loopback and requires the token in a file that only root can read, except for health
//! and readiness: a kubelet's probes carry no token. A server for load balancer health checks ([`server::Server::open`])
//! listens on any address, without a token.
//!
//! *Not here.* The content of answers and metrics (the programs), and the API of the controller, which is remote.

pub mod daemon;
pub mod log;
pub mod metrics;
pub mod server;
