//! Reading what a container runtime tells a plugin: environment variables, and the configuration on standard input.

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

/// A call of a container runtime, read and checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The version of the specification that the runtime speaks.
    pub version: Version,
    /// Where the agent is.
    pub socket: PathBuf,
    /// The name servers that the configuration has; a result has them too.
    pub dns: Dns,
    /// What is to be done.
    pub command: Command,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Attach a container.
    Add(Call),
    /// Detach it.
    Del(Release),
    /// See whether it still is as ADD left it; the second is what all plugins together did.
    Check(Call, Attachment),
    /// Would ADD work?
    Status,
    /// Remove what belongs to other attachments than these.
    Gc(Vec<AttachmentId>),
}

/// What a runtime wants of a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// Which versions are spoken here? With the one that the question is in, which need not be one of them.
    Versions(String),
    /// Something for the agent.
    Request(Box<Request>),
}

/// Why a call cannot be read, and the version in which to say so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The version that the runtime speaks, or the newest if that is not known.
    pub version: Version,
    /// What is wrong.
    pub error: Error,
}

/// Reads a call. Nothing but the arguments is looked at.
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
    /// A variable; an empty one is as good as none.
    fn get(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = (self.0)(name) else { return Ok(None) };
        let value = value.into_string().map_err(|_| {
            Error::new(Code::InvalidEnvironment, format!("environment variable {name} is wrong"))
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

    /// What identifies an attachment, with what else is needed; all that is missing is named at once.
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
        // A DEL works without it, so also with one that is wrong.
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
    Error::new(Code::InvalidEnvironment, format!("environment variable {variable} is wrong"))
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
                Error::new(Code::InvalidConfig, "CHECK needs to know what ADD did")
                    .with_details("the network configuration has no prevResult; container runtimes put it there")
            })?;
            Command::Check(call(environment, &configuration, false)?, expected)
        }
        AgentVerb::Del => {
            let (id, netns) = environment.attachment(false)?;
            // As much as there is has to go away, so what is wrong elsewhere is no reason to stop.
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
        let message = "CNI_ARGS does not say which Pod it is about";
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

/// VERSION is answered to anybody: in his version if he says one, and with nothing on standard input too.
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
    /// What to print when the agent has done it: the attachment, where there is one, or nothing.
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
