//! Parses and validates policies and groups of all kinds.
//!
//! Every problem is reported with its object and field. Parts that cannot be parsed match nothing.

mod antrea;
mod entity;
mod group;
mod kubernetes;
mod tier;

pub(crate) use antrea::{AntreaReading, AntreaRule, Relative, RelativeNamespaces, Target, kind, policy_name};
pub(crate) use entity::EntityReading;
pub(crate) use group::{GroupReading, flatten};
pub(crate) use kubernetes::{ReadPeers, ReadRule, Reading};
pub(crate) use tier::tier_priority;

use std::fmt;

use ipnet::IpNet;
use selector::{InvalidSelector, Selector};
use types::control::{IpBlock, Ports, Service};
use types::meta::{IntOrString, LabelSelector, UnknownFields, WrittenProtocol};
use types::{InvalidField, ObjectName};

/// The namespaces in which Pods are selected.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Scope {
    /// The namespace of the policy.
    Own,
    /// All namespaces that the selector selects.
    Namespaces(Selector),
}

/// A selector of Pods, with its namespaces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Selected {
    pub(crate) scope: Scope,
    pub(crate) pods: Selector,
}

impl Selected {
    /// All Pods of all known namespaces.
    pub(crate) fn everyone() -> Self {
        Self { scope: Scope::Namespaces(Selector::default()), pods: Selector::default() }
    }
}

/// The effect of an unknown field where it makes a part allow nothing.
const ALLOWS_NOTHING: &str = "is an unknown field; nothing is allowed by it";

/// The problems of an object, while it is parsed.
pub(crate) struct Problems<'a> {
    kind: &'static str,
    name: &'a ObjectName,
    found: Vec<InvalidField>,
}

impl<'a> Problems<'a> {
    fn new(kind: &'static str, name: &'a ObjectName) -> Self {
        Self { kind, name, found: Vec::new() }
    }

    fn report(&mut self, field: String, problem: impl fmt::Display) {
        let problem = problem.to_string();
        self.found.push(InvalidField { kind: self.kind, name: self.name.clone(), field, problem });
    }

    /// Reports unknown fields with their effect. Returns whether there are none.
    fn has_no_unknown(&mut self, unknown: &UnknownFields, effect: &str, field: impl Fn() -> String) -> bool {
        for name in &unknown.0 {
            self.report(format!("{}.{name}", field()), effect);
        }
        unknown.0.is_empty()
    }

    /// A selector, if it is valid.
    fn selector(&mut self, written: &LabelSelector, field: impl Fn() -> String) -> Option<Selector> {
        match Selector::new(written) {
            Ok(selector) => Some(selector),
            Err(InvalidSelector { index, problem }) => {
                self.report(format!("{}.matchExpressions[{index}]", field()), problem);
                None
            }
        }
    }

    /// The valid requirements of a selector, and whether all are valid.
    fn readable(&mut self, written: &LabelSelector, field: &str) -> (Selector, bool) {
        let (selector, invalid) = Selector::readable(written);
        let is_valid = invalid.is_empty();
        for InvalidSelector { index, problem } in invalid {
            self.report(format!("{field}.matchExpressions[{index}]"), problem);
        }
        (selector, is_valid)
    }

    /// A selector of Pods and their namespaces, if it is valid; `alone` is the scope without a namespace selector.
    fn selected(
        &mut self,
        (pods, namespaces): (Option<&LabelSelector>, Option<&LabelSelector>),
        alone: Scope,
        field: impl Fn() -> String,
    ) -> Option<Selected> {
        let pods = match pods {
            Some(written) => self.selector(written, || format!("{}.podSelector", field())),
            None => Some(Selector::default()),
        };
        let scope = match namespaces {
            Some(written) => self.selector(written, || format!("{}.namespaceSelector", field())).map(Scope::Namespaces),
            None => Some(alone),
        };
        pods.zip(scope).map(|(pods, scope)| Selected { scope, pods })
    }

    /// An ipBlock, if it is valid; `field` is its path.
    fn block(&mut self, block: &types::network_policy::IpBlock, field: impl Fn() -> String) -> Option<IpBlock> {
        let cidr = self.cidr(&block.cidr, || format!("{}.cidr", field()));
        let except: Option<Vec<IpNet>> = block
            .except
            .iter()
            .enumerate()
            .map(|(hole, text)| self.cidr(text, || format!("{}.except[{hole}]", field())))
            .collect();
        cidr.zip(except).map(|(cidr, except)| IpBlock { cidr, except })
    }

    fn cidr(&mut self, text: &str, field: impl Fn() -> String) -> Option<IpNet> {
        match text.parse() {
            Ok(cidr) => Some(cidr),
            Err(_) => {
                self.report(field(), format!("`{text}` is not a CIDR such as 10.0.0.0/8"));
                None
            }
        }
    }

    /// Destination ports, if they are valid; `field` is their path.
    fn service(
        &mut self,
        protocol: &WrittenProtocol,
        (port, last): (Option<&IntOrString>, Option<i64>),
        field: impl Fn() -> String,
    ) -> Option<Service> {
        let protocol = match protocol {
            WrittenProtocol::Known(protocol) => *protocol,
            WrittenProtocol::Other(text) => {
                self.report(format!("{}.protocol", field()), format!("`{text}` is not TCP, UDP or SCTP"));
                return None;
            }
        };
        let range = match (port, last) {
            (None, None) => Ok(None),
            (Some(IntOrString::String(name)), None) => {
                return Some(Service::Named { protocol, name: name.clone(), known_by: None });
            }
            (Some(IntOrString::Int(first)), last) => {
                match (u16::try_from(*first), u16::try_from(last.unwrap_or(*first))) {
                    (Ok(first @ 1..), Ok(last)) if first <= last => Ok(Some((first, last))),
                    (Ok(1..), _) => Err(("endPort", "needs a port from `port` to 65535")),
                    _ => Err(("port", "needs a number from 1 to 65535, or a name")),
                }
            }
            (_, Some(_)) => Err(("endPort", "needs `port` to be a number")),
        };
        match range {
            Ok(range) => Some(Service::Ports(Ports { protocol, range })),
            Err((name, problem)) => {
                self.report(format!("{}.{name}", field()), problem);
                None
            }
        }
    }
}

/// The field path of a rule, for messages.
#[derive(Clone, Copy)]
struct Field<'a> {
    rules: &'a str,
    index: u32,
    peers: &'a str,
}

impl Field<'_> {
    fn peer(self, n: usize) -> String {
        format!("{}.{}[{n}]", self.rule(), self.peers)
    }

    fn port(self, n: usize) -> String {
        format!("{}.ports[{n}]", self.rule())
    }

    fn rule(self) -> String {
        format!("spec.{}[{}]", self.rules, self.index)
    }
}
