//! The crate from outside.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod codegen;
