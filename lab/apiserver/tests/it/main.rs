//! The server over HTTPS, as its clients use it.

#[cfg(test)]
mod aggregation;
#[cfg(test)]
mod caches;
#[cfg(test)]
mod client;
#[cfg(test)]
mod controllers;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod kubelets;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod watches;
