//! Runs antctl as a program.

#[cfg(test)]
mod pipeline;
#[cfg(test)]
mod replay;
