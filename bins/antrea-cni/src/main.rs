//! The CNI plugin: hands a container runtime's call to antrea-agent, and its answer back.
//!
//! *Role.* Started for every Pod that comes or goes, so it is small and does nothing itself: it reads the call, asks the agent
//! over its unix socket, and prints the answer in the runtime's version of the CNI specification.
//!
//! *Invariants.* Standard output has one JSON document, or nothing where the specification wants nothing; an error is one too,
//! and ends with a non-zero status. Whatever happens, it ends.
//!
//! *Not here.* Reading and writing CNI (crate `api`); networks (antrea-agent).

use std::io::{self, Read, Write};
use std::process::ExitCode;

use api::cni::{Code, Error, Question, Refusal, Request, Version, client, request, result};

/// A network configuration has some hundred bytes, and the list of a large Node's attachments some ten thousand.
const LONGEST_INPUT: u64 = 4 << 20;

const HELP: &str = "\
antrea-cni is the CNI plugin of antrea-rs. It is not for people: a container runtime (containerd, CRI-O) starts it for every
Pod, with the environment variable CNI_COMMAND and a network configuration on standard input, and it hands the call to
antrea-agent. `antrea-agent install-cni` puts it and a network configuration where runtimes look for them.

To see which versions of the CNI specification it speaks:    CNI_COMMAND=VERSION antrea-cni < /dev/null
To see whether the agent of this Node is ready for Pods:
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
        // For a person; a runtime gets the error below.
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
        Question::Request(request) => carry_out(&request).map_err(|error| Refusal { version: request.version, error }),
    }
}

fn carry_out(request: &Request) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| failed("cannot start", &error))?;
    let attachment = runtime.block_on(client::call(&request.socket, &request.command, client::PATIENCE))?;
    Ok(request.answer(attachment))
}

/// The network configuration; nothing if no runtime is there to write one.
fn input() -> Result<Vec<u8>, Error> {
    let mut input = Vec::new();
    if std::env::var_os("CNI_COMMAND").is_none() {
        return Ok(input);
    }
    io::stdin()
        .take(LONGEST_INPUT + 1)
        .read_to_end(&mut input)
        .map_err(|error| failed("cannot read the network configuration from standard input", &error))?;
    if input.len() as u64 > LONGEST_INPUT {
        let details = format!("standard input has more than {LONGEST_INPUT} bytes");
        return Err(Error::new(Code::InvalidConfig, "the network configuration is too long").with_details(details));
    }
    Ok(input)
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::new(Code::Io, what).with_details(error.to_string())
}

/// Prints a line. A runtime that does not read it will know why; the status tells it that something is wrong.
fn print(to: &mut dyn Write, text: &str) -> ExitCode {
    match writeln!(to, "{text}").and_then(|()| to.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
