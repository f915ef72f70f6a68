//! Runs antctl as a program.

#[cfg(test)]
mod pipeline;
