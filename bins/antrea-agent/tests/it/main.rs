//! antrea-agent as people and init containers run it.

#[cfg(test)]
mod command_line;
