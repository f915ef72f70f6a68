//! The server over HTTPS, the way its clients use it.

mod client;
mod controllers;
mod kubectl;
mod requests;
mod watches;
