//! The CNI plugin: sends the call of a container runtime to antrea-agent, and prints its reply.
//!
//! *Role.* Runtimes start it for every Pod that is added or removed, so it is small and does nothing itself: it reads
//! the call, sends it to the agent over its unix socket, and prints the reply in the runtime's version of the CNI
//! specification.
//!
//! *Invariants.* Standard output has one JSON document, or nothing where the specification requires nothing. An error
//! is a JSON document too, and the exit status is not zero. The plugin always terminates: calls have a timeout, input
//! has a size limit.
//!
//! *Not here.* Parsing and printing of CNI (crate `api`); networking (antrea-agent).

use std::io::{self, Read, Write};
use std::process::ExitCode;

use api::cni::{Code, Error, Question, Refusal, Request, Version, client, request, result};

/// A network configuration has some hundred bytes, the list of attachments of a large Node some ten thousand.
const MAX_INPUT: u64 = 4 << 20;

const HELP: &str = "\
antrea-cni is the CNI plugin of antrea-rs. Container runtimes (containerd, CRI-O) start it for every
Pod, with the environment variable CNI_COMMAND and a network configuration on standard input; it sends the call to
antrea-agent. `antrea-agent install-cni` installs it, and a network configuration, where runtimes look for them.

Show the supported versions of the CNI specification:    CNI_COMMAND=VERSION antrea-cni < /dev/null
Check whether the agent of this Node is ready for Pods:
  echo '{\"cniVersion\": \"1.1.0\", \"name\": \"antrea\"}' | CNI_COMMAND=STATUS antrea-cni && echo ready
";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|argument| argument.to_str()) {
        Some("--version" | "-V") => return print(&mut io::stdout(), concat!("antrea-cni ", env!("CARGO_PKG_VERSION"))),
        Some("--help" | "-h" | "help") => return print(&mut io::stdout(), HELP.trim_end()),
        _ => {}
    }
    if std::env::var_os("CNI_COMMAND").is_none() {
        // For an operator; a runtime gets the error below.
        print(&mut io::stderr(), HELP);
    }
    match answer() {
        Ok(answer) if answer.is_empty() => ExitCode::SUCCESS,
        Ok(answer) => print(&mut io::stdout(), &answer),
        Err(Refusal { version, error }) => {
            print(&mut io::stdout(), &error.to_json(version));
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<String, Refusal> {
    let input = input().map_err(|error| Refusal { version: Version::NEWEST, error })?;
    match request::read(|name| std::env::var_os(name), &input)? {
        Question::Versions(asked) => Ok(result::versions(&asked)),
        Question::Request(request) => execute(&request).map_err(|error| Refusal { version: request.version, error }),
    }
}

fn execute(request: &Request) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| failed("cannot start", &error))?;
    let attachment = runtime.block_on(client::call(&request.socket, &request.command, client::TIMEOUT))?;
    Ok(request.answer(attachment))
}

/// The network configuration; empty without `CNI_COMMAND`, when no runtime writes one.
fn input() -> Result<Vec<u8>, Error> {
    let mut input = Vec::new();
    if std::env::var_os("CNI_COMMAND").is_none() {
        return Ok(input);
    }
    io::stdin()
        .take(MAX_INPUT + 1)
        .read_to_end(&mut input)
        .map_err(|error| failed("cannot read the network configuration from standard input", &error))?;
    if input.len() as u64 > MAX_INPUT {
        let details = format!("standard input has more than {MAX_INPUT} bytes");
        return Err(Error::new(Code::InvalidConfig, "the network configuration is too long").with_details(details));
    }
    Ok(input)
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::new(Code::Io, what).with_details(error.to_string())
}

/// Prints a line. A failed write only shows in the exit status: the runtime that closed the pipe does not read an
/// error.
fn print(to: &mut dyn Write, text: &str) -> ExitCode {
    match writeln!(to, "{text}").and_then(|()| to.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
