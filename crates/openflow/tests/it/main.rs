//! The codec against the real tools.

mod flows;
