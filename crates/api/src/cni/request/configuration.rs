//! The network configuration: the keys for this plugin. Keys for other plugins are ignored.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use crate::cni::call::identifier;
use crate::cni::result::{self, DnsDocument, or_nothing, typed};
use crate::cni::{Attachment, AttachmentId, Code, ContainerId, DEFAULT_SOCKET, Dns, Error, InterfaceName, Version};

/// The limit of `sockaddr_un`, without the final NUL.
const MAX_SOCKET_PATH: usize = 107;
/// The minimum of IPv4, and the maximum of devices.
const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;
/// The only supported IPAM plugin. The agent implements it itself, with the files of that plugin.
const IPAM: &str = "host-local";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    mtu: Option<u32>,
    /// Path of the agent's socket; not a key of the specification.
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

/// A network configuration in which every key has the right type.
pub(super) struct Configuration {
    document: Document,
    /// `prevResult`, parsed only for commands that need it: a DEL succeeds without it.
    previous: Option<Value>,
}

/// Parses the configuration as a JSON object.
pub(super) fn document(input: &[u8]) -> Result<Value, Error> {
    let message = "cannot read the network configuration";
    let bad = |problem: String| Error::new(Code::Decode, message).with_details(problem);
    if input.trim_ascii().is_empty() {
        return Err(bad("standard input is empty; container runtimes write the network configuration there".into()));
    }
    let document: Value =
        serde_json::from_slice(input).map_err(|error| bad(format!("standard input is not JSON: {error}")))?;
    if document.is_object() { Ok(document) } else { Err(bad("standard input is not a JSON object".into())) }
}

/// The value of `cniVersion`, not validated.
pub(super) fn version_text(document: &Value) -> Result<Option<&str>, Error> {
    match document.get("cniVersion") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(version)) => Ok(Some(version)),
        Some(other) => Err(Error::new(Code::Decode, "cannot read the network configuration")
            .with_details(format!("cniVersion: {other} is not a text such as \"{}\"", Version::NEWEST))),
    }
}

/// The version of the configuration, if it is supported.
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
        // 0 means that the plugin chooses.
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
        if path.len() > MAX_SOCKET_PATH {
            return Err(invalid(
                "socket",
                format!("{} bytes are too long for the path of a socket: at most {MAX_SOCKET_PATH}", path.len()),
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

    /// GC without a list would remove everything, so the list is required.
    pub(super) fn valid_attachments(&self) -> Result<Vec<AttachmentId>, Error> {
        let key = "cni.dev/valid-attachments";
        let Some(list) = &self.document.valid_attachments else {
            return Err(invalid(key, "is missing; container runtimes list there the attachments to keep"));
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
    Error::new(Code::InvalidConfig, "invalid network configuration").with_details(format!("{key}: {problem}"))
}
