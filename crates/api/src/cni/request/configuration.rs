//! The network configuration, as far as it is for this plugin; what is for others passes unseen.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use crate::cni::call::identifier;
use crate::cni::result::{self, DnsDocument, or_nothing, typed};
use crate::cni::{Attachment, AttachmentId, Code, ContainerId, DEFAULT_SOCKET, Dns, Error, InterfaceName, Version};

/// The longest path that a unix socket can have.
const LONGEST_SOCKET: usize = 107;
/// What IPv4 and the devices allow.
const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;
/// The one way to get addresses that is implemented; it is done in the agent, on the files of that plugin.
const IPAM: &str = "host-local";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    mtu: Option<u32>,
    /// Where the agent listens; ours.
    #[serde(default)]
    socket: Option<String>,
    #[serde(default)]
    ipam: Option<Ipam>,
    #[serde(default, deserialize_with = "or_nothing")]
    dns: DnsDocument,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<ValidAttachment>>,
}

#[derive(Deserialize)]
struct Ipam {
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

/// A network configuration whose parts have the right types.
pub(super) struct Configuration {
    document: Document,
    /// Read where it is needed: a DEL works without it.
    previous: Option<Value>,
}

/// The configuration as JSON.
pub(super) fn document(input: &[u8]) -> Result<Value, Error> {
    let message = "the network configuration cannot be read";
    let bad = |problem: String| Error::new(Code::Decode, message).with_details(problem);
    if input.trim_ascii().is_empty() {
        return Err(bad("standard input is empty; container runtimes write the network configuration there".into()));
    }
    let document: Value =
        serde_json::from_slice(input).map_err(|error| bad(format!("standard input is not JSON: {error}")))?;
    if document.is_object() { Ok(document) } else { Err(bad("standard input is not a JSON object".into())) }
}

/// The version that the configuration says, as text.
pub(super) fn version_text(document: &Value) -> Result<Option<&str>, Error> {
    match document.get("cniVersion") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(version)) => Ok(Some(version)),
        Some(other) => Err(Error::new(Code::Decode, "the network configuration cannot be read")
            .with_details(format!("cniVersion: {other} is not a text such as \"{}\"", Version::NEWEST))),
    }
}

/// The version that the configuration says; one that is not spoken here is an error.
pub(super) fn version(document: &Value) -> Result<Version, Error> {
    let spoken = Version::ALL.map(Version::as_str).join(", ");
    let text = version_text(document)?;
    text.and_then(Version::parse).ok_or_else(|| {
        let found = text.map_or_else(
            || "there is no cniVersion".to_owned(),
            |text| format!("cniVersion is `{}`", text.escape_debug()),
        );
        Error::new(Code::IncompatibleVersion, "incompatible CNI version")
            .with_details(format!("in the network configuration {found}; it can be one of {spoken}"))
    })
}

impl Configuration {
    pub(super) fn read(mut document: Value) -> Result<Self, Error> {
        let previous = document.get_mut("prevResult").map(Value::take).filter(|value| !value.is_null());
        Ok(Self { document: typed("", document)?, previous })
    }

    pub(super) fn previous(&self) -> Result<Option<Attachment>, Error> {
        self.previous.clone().map(|value| result::read("prevResult", value)).transpose()
    }

    pub(super) fn network(&self) -> Result<String, Error> {
        let name = self.document.name.clone().unwrap_or_default();
        identifier(&name).map_err(|error| invalid("name", error))?;
        Ok(name)
    }

    pub(super) fn mtu(&self) -> Result<Option<u32>, Error> {
        // Nought is how configurations say that the plugin shall find out.
        let mtu = self.document.mtu.filter(|mtu| *mtu != 0);
        match mtu {
            Some(mtu) if !MTUS.contains(&mtu) => {
                Err(invalid("mtu", format!("{mtu} is not between {} and {}", MTUS.start(), MTUS.end())))
            }
            _ => Ok(mtu),
        }
    }

    pub(super) fn socket(&self) -> Result<PathBuf, Error> {
        let path = self.document.socket.as_deref().filter(|path| !path.is_empty()).unwrap_or(DEFAULT_SOCKET);
        if path.len() > LONGEST_SOCKET {
            return Err(invalid(
                "socket",
                format!("{} bytes are too long for the path of a socket: {LONGEST_SOCKET} are the limit", path.len()),
            ));
        }
        if !path.starts_with('/') || path.contains('\0') {
            return Err(invalid(
                "socket",
                format!("`{}` is not an absolute path such as {DEFAULT_SOCKET}", path.escape_debug()),
            ));
        }
        Ok(path.into())
    }

    pub(super) fn check_ipam(&self) -> Result<(), Error> {
        let kind = self.document.ipam.as_ref().and_then(|ipam| ipam.kind.as_deref());
        match kind {
            None | Some("" | IPAM) => Ok(()),
            Some(other) => Err(Error::new(
                Code::UnsupportedField,
                format!("the network configuration has ipam.type `{}`, which is not supported", other.escape_debug()),
            )
            .with_details(format!("leave it out or set it to {IPAM}"))),
        }
    }

    pub(super) fn dns(&self) -> Dns {
        self.document.dns.clone().into_dns()
    }

    /// GC without a list would remove everything, so there has to be one.
    pub(super) fn valid_attachments(&self) -> Result<Vec<AttachmentId>, Error> {
        let key = "cni.dev/valid-attachments";
        let Some(list) = &self.document.valid_attachments else {
            return Err(invalid(key, "is missing; container runtimes list there what is to be kept"));
        };
        let id = |(index, valid): (usize, &ValidAttachment)| {
            let at = |field: &str| format!("{key}[{index}].{field}");
            Ok(AttachmentId {
                container: ContainerId::new(&valid.container).map_err(|error| invalid(&at("containerID"), error))?,
                ifname: InterfaceName::new(&valid.ifname).map_err(|error| invalid(&at("ifname"), error))?,
            })
        };
        list.iter().enumerate().map(id).collect()
    }
}

fn invalid(key: &str, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidConfig, "the network configuration is wrong").with_details(format!("{key}: {problem}"))
}
