//! What people ask of a lab.

pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod enter;
pub(crate) mod exec;
pub(crate) mod logs;
pub(crate) mod node;
pub(crate) mod status;
pub(crate) mod up;

use std::io::Write;

/// Prints a line. A reader that has seen enough is no failure.
pub(crate) fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}
