//! Programs that read a script from their standard input.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// Runs a program with this input to its end.
pub(crate) fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // These programs read their whole input before they write. If one fails early, its message is more useful than the write error.
    if let Some(mut pipe) = child.stdin.take() {
        let _ = pipe.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// The error output of a program.
pub(crate) fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
