//! antrea-cni run as container runtimes run it, with an agent behind a real socket.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod chain;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod plugin;
