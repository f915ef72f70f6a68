//! antctl as people run it.

#[cfg(test)]
mod pipeline;
