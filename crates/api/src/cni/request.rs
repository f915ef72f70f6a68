//! Reads the call of a container runtime: environment variables, and the configuration on standard input.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;

use super::call::namespace_path;
use super::{
    Attachment, AttachmentId, Call, Code, ContainerId, Dns, Error, InterfaceName, Invalid, Pod, Release, Version,
    result,
};

mod arguments;
mod configuration;

use arguments::Arguments;
use configuration::Configuration;

/// A validated call of a container runtime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Version of the specification, from the configuration.
    pub version: Version,
    /// Path of the agent's socket.
    pub socket: PathBuf,
    /// Name servers of the configuration, which are added to the result.
    pub dns: Dns,
    /// The command with its parameters.
    pub command: Command,
}

/// A command for the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Attach a container to the network.
    Add(Call),
    /// Detach a container from the network.
    Del(Release),
    /// Check that a container is attached as expected; the second value is the result of all plugins together.
    Check(Call, Attachment),
    /// Check whether an ADD would succeed.
    Status,
    /// Remove everything that belongs to attachments not listed.
    Gc(Vec<AttachmentId>),
}

/// What a runtime asks of a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// VERSION: the supported versions. With the version of the request, which may be an unsupported one.
    Versions(String),
    /// Any other command, which the agent executes.
    Request(Box<Request>),
}

/// An invalid call, and the version for the error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Version of the runtime; the newest if it is unknown.
    pub version: Version,
    /// The problem, with the name of the variable or key.
    pub error: Error,
}

/// Reads a call from `environment` and `input` only.
pub fn read(environment: impl Fn(&str) -> Option<OsString>, input: &[u8]) -> Result<Question, Refusal> {
    let newest = |error| Refusal { version: Version::NEWEST, error };
    let environment = Environment(environment);
    let verb = environment.verb().map_err(newest)?;
    let Verb::Agent(verb) = verb else {
        return versions(input).map_err(newest);
    };
    let document = configuration::document(input).map_err(newest)?;
    let version = configuration::version(&document).map_err(newest)?;
    verb.known_in(version)
        .and_then(|()| request(verb, version, &environment, document))
        .map_err(|error| Refusal { version, error })
}

/// The value of `CNI_COMMAND`.
#[derive(Clone, Copy)]
enum Verb {
    Version,
    Agent(AgentVerb),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentVerb {
    Add,
    Del,
    Check,
    Status,
    Gc,
}

impl Verb {
    const ALL: [(&str, Self); 6] = [
        ("ADD", Self::Agent(AgentVerb::Add)),
        ("DEL", Self::Agent(AgentVerb::Del)),
        ("CHECK", Self::Agent(AgentVerb::Check)),
        ("STATUS", Self::Agent(AgentVerb::Status)),
        ("GC", Self::Agent(AgentVerb::Gc)),
        ("VERSION", Self::Version),
    ];
}

impl AgentVerb {
    fn known_in(self, version: Version) -> Result<(), Error> {
        let (name, since) = match self {
            Self::Add | Self::Del => return Ok(()),
            Self::Check => ("CHECK", Version::V0_4_0),
            Self::Status => ("STATUS", Version::V1_1_0),
            Self::Gc => ("GC", Version::V1_1_0),
        };
        if version >= since {
            return Ok(());
        }
        let details = format!("the network configuration has cniVersion {version}, and {name} came with {since}");
        Err(Error::new(Code::IncompatibleVersion, format!("no {name} in this version")).with_details(details))
    }
}

struct Environment<F>(F);

impl<F: Fn(&str) -> Option<OsString>> Environment<F> {
    /// A variable; an empty one counts as missing.
    fn get(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = (self.0)(name) else { return Ok(None) };
        let value = value.into_string().map_err(|_| {
            Error::new(Code::InvalidEnvironment, format!("invalid environment variable {name}"))
                .with_details("it is not UTF-8")
        })?;
        Ok(Some(value).filter(|value| !value.is_empty()))
    }

    fn verb(&self) -> Result<Verb, Error> {
        let names = Verb::ALL.map(|(name, _)| name).join(", ");
        let Some(value) = self.get("CNI_COMMAND")? else {
            let details = format!("it must be one of {names}; container runtimes set it");
            return Err(Error::new(Code::InvalidEnvironment, "CNI_COMMAND is missing").with_details(details));
        };
        Verb::ALL
            .into_iter()
            .find(|(name, _)| *name == value)
            .map(|(_, verb)| verb)
            .ok_or_else(|| wrong("CNI_COMMAND", &Invalid::new(&value, format!("is not one of {names}"))))
    }

    /// The attachment, with the netns if it is required. One error names everything that is missing.
    fn attachment(&self, netns: bool) -> Result<(AttachmentId, Option<String>), Error> {
        let [container, ifname, path] = [self.get("CNI_CONTAINERID")?, self.get("CNI_IFNAME")?, self.get("CNI_NETNS")?];
        let needed = [("CNI_CONTAINERID", &container), ("CNI_IFNAME", &ifname), ("CNI_NETNS", &path)];
        let needed = needed.into_iter().filter(|(name, _)| netns || *name != "CNI_NETNS");
        let missing: Vec<_> = needed.filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        let (Some(container), Some(ifname), true) = (container, ifname, missing.is_empty()) else {
            let details = "they must be set and not empty; container runtimes set them";
            let message = format!("missing environment variables: {}", missing.join(", "));
            return Err(Error::new(Code::InvalidEnvironment, message).with_details(details));
        };
        let container = ContainerId::new(container).map_err(|error| wrong("CNI_CONTAINERID", &error))?;
        let ifname = InterfaceName::new(ifname).map_err(|error| wrong("CNI_IFNAME", &error))?;
        // A DEL succeeds without the path, so an invalid one is ignored.
        let path = match path {
            Some(path) => match namespace_path(&path) {
                Ok(()) => Some(path),
                Err(error) if netns => return Err(wrong("CNI_NETNS", &error)),
                Err(_) => None,
            },
            None => None,
        };
        Ok((AttachmentId { container, ifname }, path))
    }

    fn pod(&self) -> Result<Option<Pod>, Error> {
        let arguments = Arguments::read(self.get("CNI_ARGS")?.as_deref().unwrap_or_default())?;
        let Some((namespace, name)) = arguments.pod_namespace.zip(arguments.pod_name) else { return Ok(None) };
        Pod::new(namespace, name, arguments.pod_uid.unwrap_or_default())
            .map(Some)
            .map_err(|error| wrong("CNI_ARGS", &error))
    }
}

fn wrong(variable: &str, problem: &Invalid) -> Error {
    Error::new(Code::InvalidEnvironment, format!("invalid environment variable {variable}"))
        .with_details(problem.to_string())
}

fn request<F: Fn(&str) -> Option<OsString>>(
    verb: AgentVerb,
    version: Version,
    environment: &Environment<F>,
    document: Value,
) -> Result<Question, Error> {
    let configuration = Configuration::read(document)?;
    let command = match verb {
        AgentVerb::Add => Command::Add(call(environment, &configuration, true)?),
        AgentVerb::Check => {
            let expected = configuration.previous()?.ok_or_else(|| {
                Error::new(Code::InvalidConfig, "CHECK requires the result of ADD")
                    .with_details("the network configuration has no prevResult; container runtimes put it there")
            })?;
            Command::Check(call(environment, &configuration, false)?, expected)
        }
        AgentVerb::Del => {
            let (id, netns) = environment.attachment(false)?;
            // DEL removes as much as it can: an invalid Pod or configuration is ignored.
            Command::Del(Release { id, netns, pod: environment.pod().unwrap_or_default() })
        }
        AgentVerb::Status => Command::Status,
        AgentVerb::Gc => Command::Gc(configuration.valid_attachments()?),
    };
    let request = Request { version, socket: configuration.socket()?, dns: configuration.dns(), command };
    Ok(Question::Request(Box::new(request)))
}

fn call<F: Fn(&str) -> Option<OsString>>(
    environment: &Environment<F>,
    configuration: &Configuration,
    with_previous: bool,
) -> Result<Call, Error> {
    let (id, netns) = environment.attachment(true)?;
    let pod = environment.pod()?.ok_or_else(|| {
        let message = "CNI_ARGS does not name the Pod";
        let details = "it needs K8S_POD_NAMESPACE and K8S_POD_NAME, as in K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0";
        Error::new(Code::InvalidEnvironment, message).with_details(details)
    })?;
    configuration.check_ipam()?;
    Ok(Call {
        id,
        network: configuration.network()?,
        netns: netns.unwrap_or_default(),
        pod,
        mtu: configuration.mtu()?,
        previous: if with_previous { configuration.previous()? } else { None },
    })
}

/// VERSION is always answered: in the version of the request if it has one, also with empty standard input.
fn versions(input: &[u8]) -> Result<Question, Error> {
    let newest = Version::NEWEST.as_str();
    if input.trim_ascii().is_empty() {
        return Ok(Question::Versions(newest.into()));
    }
    let document = configuration::document(input)?;
    let asked = configuration::version_text(&document)?;
    Ok(Question::Versions(asked.unwrap_or(newest).into()))
}

impl Request {
    /// The text to print after the agent's reply: the result of ADD, and nothing for other commands.
    pub fn answer(&self, attachment: Option<Attachment>) -> String {
        let Some(mut attachment) = attachment else { return String::new() };
        if attachment.dns.is_empty() {
            attachment.dns = self.dns.clone();
        }
        result::added(&attachment, self.version)
    }
}

#[cfg(test)]
mod tests;
