//! Conversions between the messages on the socket and the types of the two sides. Incoming values are validated again:
//! any process that can open the socket can write to it.

use std::fmt::Display;
use std::str::FromStr;

use super::call::{identifier, namespace_path};
use super::wire::{self, add_reply::Outcome};
use super::{
    Attachment, AttachmentId, Call, Code, ContainerId, Dns, Error, Interface, InterfaceName, Ip, Pod, Release, Route,
};

/// The error for an invalid message.
fn bad(field: &str, problem: impl Display) -> Error {
    Error::new(Code::Rpc, format!("cannot read the message on the socket: {field}: {problem}")).with_details(
        "antrea-cni and antrea-agent may be of different versions; restarting the agent installs its own antrea-cni",
    )
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| bad(field, "is missing"))
}

fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error| bad(field, format!("`{}`: {error}", text.escape_debug())))
}

fn parsed_or_none<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<Option<T>, Error> {
    if text.is_empty() { Ok(None) } else { parsed(field, text).map(Some) }
}

impl From<&AttachmentId> for wire::AttachmentId {
    fn from(id: &AttachmentId) -> Self {
        Self { container: id.container.to_string(), ifname: id.ifname.to_string() }
    }
}

impl TryFrom<wire::AttachmentId> for AttachmentId {
    type Error = Error;

    fn try_from(id: wire::AttachmentId) -> Result<Self, Error> {
        Ok(Self {
            container: ContainerId::new(id.container).map_err(|error| bad("container", error))?,
            ifname: InterfaceName::new(id.ifname).map_err(|error| bad("ifname", error))?,
        })
    }
}

impl From<&Pod> for wire::Pod {
    fn from(pod: &Pod) -> Self {
        Self { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
    }
}

impl TryFrom<wire::Pod> for Pod {
    type Error = Error;

    fn try_from(pod: wire::Pod) -> Result<Self, Error> {
        Self::new(pod.namespace, pod.name, pod.uid).map_err(|error| bad("pod", error))
    }
}

impl From<&Call> for wire::Call {
    fn from(call: &Call) -> Self {
        Self {
            id: Some((&call.id).into()),
            network: call.network.clone(),
            netns: call.netns.clone(),
            pod: Some((&call.pod).into()),
            mtu: call.mtu,
            previous: call.previous.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::Call> for Call {
    type Error = Error;

    fn try_from(call: wire::Call) -> Result<Self, Error> {
        identifier(&call.network).map_err(|error| bad("network", error))?;
        namespace_path(&call.netns).map_err(|error| bad("netns", error))?;
        Ok(Self {
            id: required("id", call.id)?.try_into()?,
            network: call.network,
            netns: call.netns,
            pod: required("pod", call.pod)?.try_into()?,
            mtu: call.mtu,
            previous: call.previous.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Release> for wire::DelRequest {
    fn from(release: &Release) -> Self {
        Self {
            id: Some((&release.id).into()),
            netns: release.netns.clone().unwrap_or_default(),
            pod: release.pod.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::DelRequest> for Release {
    type Error = Error;

    fn try_from(release: wire::DelRequest) -> Result<Self, Error> {
        if !release.netns.is_empty() {
            namespace_path(&release.netns).map_err(|error| bad("netns", error))?;
        }
        Ok(Self {
            id: required("id", release.id)?.try_into()?,
            netns: Some(release.netns).filter(|path| !path.is_empty()),
            pod: release.pod.map(TryInto::try_into).transpose()?,
        })
    }
}

/// Parameters of a CHECK: the call, and the expected attachment.
pub(super) fn check(request: wire::CheckRequest) -> Result<(Call, Attachment), Error> {
    Ok((required("call", request.call)?.try_into()?, required("expected", request.expected)?.try_into()?))
}

/// Parameters of an ADD, validated.
pub(super) fn add(request: wire::AddRequest) -> Result<Call, Error> {
    required("call", request.call)?.try_into()
}

/// The attachments that a GC keeps.
pub(super) fn gc(request: wire::GcRequest) -> Result<Vec<AttachmentId>, Error> {
    request.valid.into_iter().map(TryInto::try_into).collect()
}

impl From<&Attachment> for wire::Attachment {
    fn from(attachment: &Attachment) -> Self {
        let interface = |it: &Interface| wire::Interface {
            name: it.name.clone(),
            mac: it.mac.clone(),
            sandbox: it.sandbox.clone(),
            mtu: it.mtu,
        };
        let ip = |ip: &Ip| wire::Ip {
            address: ip.address.to_string(),
            gateway: ip.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
            interface: ip.interface,
        };
        let route = |route: &Route| wire::Route {
            destination: route.destination.to_string(),
            gateway: route.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
            mtu: route.mtu,
        };
        let Dns { nameservers, domain, search, options } = attachment.dns.clone();
        Self {
            interfaces: attachment.interfaces.iter().map(interface).collect(),
            ips: attachment.ips.iter().map(ip).collect(),
            routes: attachment.routes.iter().map(route).collect(),
            dns: Some(wire::Dns { nameservers, domain, search, options }),
        }
    }
}

impl TryFrom<wire::Attachment> for Attachment {
    type Error = Error;

    fn try_from(attachment: wire::Attachment) -> Result<Self, Error> {
        let interface =
            |it: wire::Interface| Interface { name: it.name, mac: it.mac, sandbox: it.sandbox, mtu: it.mtu };
        let ip = |it: wire::Ip| {
            Ok(Ip {
                address: parsed("ips.address", &it.address)?,
                gateway: parsed_or_none("ips.gateway", &it.gateway)?,
                interface: it.interface,
            })
        };
        let route = |it: wire::Route| {
            Ok(Route {
                destination: parsed("routes.destination", &it.destination)?,
                gateway: parsed_or_none("routes.gateway", &it.gateway)?,
                mtu: it.mtu,
            })
        };
        let wire::Dns { nameservers, domain, search, options } = attachment.dns.unwrap_or_default();
        Ok(Self {
            interfaces: attachment.interfaces.into_iter().map(interface).collect(),
            ips: attachment.ips.into_iter().map(ip).collect::<Result<_, Error>>()?,
            routes: attachment.routes.into_iter().map(route).collect::<Result<_, Error>>()?,
            dns: Dns { nameservers, domain, search, options },
        })
    }
}

impl From<Error> for wire::Error {
    fn from(error: Error) -> Self {
        Self { code: error.code.number(), message: error.message, details: error.details }
    }
}

impl From<wire::Error> for Error {
    fn from(error: wire::Error) -> Self {
        Self { code: Code::of(error.code), message: error.message, details: error.details }
    }
}

impl From<Result<(), Error>> for wire::Done {
    fn from(outcome: Result<(), Error>) -> Self {
        Self { error: outcome.err().map(Into::into) }
    }
}

impl From<wire::Done> for Result<(), Error> {
    fn from(done: wire::Done) -> Self {
        done.error.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl From<Result<Attachment, Error>> for wire::AddReply {
    fn from(outcome: Result<Attachment, Error>) -> Self {
        let outcome = match outcome {
            Ok(attachment) => Outcome::Attachment((&attachment).into()),
            Err(error) => Outcome::Error(error.into()),
        };
        Self { outcome: Some(outcome) }
    }
}

impl From<wire::AddReply> for Result<Attachment, Error> {
    fn from(reply: wire::AddReply) -> Self {
        match required("outcome", reply.outcome)? {
            Outcome::Attachment(attachment) => attachment.try_into(),
            Outcome::Error(error) => Err(error.into()),
        }
    }
}
