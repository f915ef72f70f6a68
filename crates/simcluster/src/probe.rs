//! Connections to try, as text: `default/client -> svc:default/web tcp/80`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use types::ObjectName;
use types::meta::Protocol;

use crate::Error;

const SYNTAX: &str = "`SOURCE -> DESTINATION PROTOCOL/PORT`, where SOURCE is `namespace/pod`, `node:NAME` or `outside@NODE`, and \
                      DESTINATION is `namespace/pod`, `node:NAME`, `svc:namespace/name` or an address";

/// An end of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A Pod, by its first address of the fitting family.
    Pod(ObjectName),
    /// A process in the host network of a Node.
    Node(String),
    /// A Service, by its cluster IP.
    Service(ObjectName),
    /// An address in or outside of the cluster.
    Address(IpAddr),
    /// A host outside the cluster whose packets reach the cluster through a Node.
    Outside(String),
}

/// A connection to try.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Probe {
    /// The client of the connection.
    pub from: Target,
    /// The destination of the first packet.
    pub to: Target,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// Destination port of the first packet.
    pub port: u16,
}

impl FromStr for Probe {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::new(format!("probe `{text}`: needs {SYNTAX}"));
        let (from, rest) = text.split_once(" -> ").ok_or_else(invalid)?;
        let (to, service) = rest.rsplit_once(' ').ok_or_else(invalid)?;
        let (protocol, port) = service.split_once('/').ok_or_else(invalid)?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return Err(invalid()),
        };
        let (from, to) = (Target::parse(from).ok_or_else(invalid)?, Target::parse(to).ok_or_else(invalid)?);
        if matches!(from, Target::Service(_) | Target::Address(_)) || matches!(to, Target::Outside(_)) {
            return Err(invalid());
        }
        Ok(Self { from, to, protocol, port: port.parse().map_err(|_| invalid())? })
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        write!(f, "{} -> {} {protocol}/{}", self.from, self.to, self.port)
    }
}

impl Target {
    fn parse(text: &str) -> Option<Self> {
        let object = |text: &str| {
            let (namespace, name) = text.split_once('/')?;
            Some(ObjectName { namespace: namespace.to_owned(), name: name.to_owned() })
        };
        if let Some(node) = text.strip_prefix("node:") {
            return Some(Target::Node(node.to_owned()));
        }
        if let Some(node) = text.strip_prefix("outside@") {
            return Some(Target::Outside(node.to_owned()));
        }
        if let Some(service) = text.strip_prefix("svc:") {
            return object(service).map(Target::Service);
        }
        match text.parse() {
            Ok(address) => Some(Target::Address(address)),
            Err(_) => object(text).map(Target::Pod),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pod(name) => write!(f, "{name}"),
            Target::Node(name) => write!(f, "node:{name}"),
            Target::Service(name) => write!(f, "svc:{name}"),
            Target::Address(address) => write!(f, "{address}"),
            Target::Outside(node) => write!(f, "outside@{node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_printed_as_they_are_read() {
        for text in [
            "default/client -> svc:default/web tcp/80",
            "node:node1 -> default/web udp/53",
            "outside@node2 -> node:node2 tcp/30001",
            "default/client -> 192.0.2.7 sctp/9",
        ] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
        for text in
            ["", "a -> b tcp/80", "default/a -> default/b", "default/a -> default/b icmp/1", "1.2.3.4 -> a/b tcp/1"]
        {
            assert!(text.parse::<Probe>().is_err(), "{text}");
        }
    }
}
