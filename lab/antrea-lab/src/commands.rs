//! The commands of the program.

pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod enter;
pub(crate) mod exec;
pub(crate) mod kubectl;
pub(crate) mod logs;
pub(crate) mod membership;
pub(crate) mod node;
pub(crate) mod status;
pub(crate) mod up;

use std::io::Write;

/// Prints a line. A closed pipe is not an error.
pub(crate) fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}

/// The command line for a command of this lab, with the program as it was called.
pub(crate) fn call(command: &str, lab: &str) -> String {
    let me = std::env::args().next().unwrap_or_else(|| "antrea-lab".to_owned());
    let name = if lab == "lab" { String::new() } else { format!(" --name {lab}") };
    format!("{me} {command}{name}")
}
