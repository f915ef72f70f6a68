//! Selects the endpoints of EndpointSlices that get connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use types::InvalidField;
use types::service::{EndpointHints, EndpointSlice, ServicePort, SliceEndpoint};

use crate::viewpoint::Viewpoint;
use crate::{Endpoint, ordered};

/// Condition of an endpoint, from worse to better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Condition {
    /// Terminating, but still serving.
    Terminating,
    Ready,
}

/// An endpoint that may be selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) endpoint: Endpoint,
    /// Whether it is on this Node.
    pub(crate) is_local: bool,
    condition: Condition,
    hints: Option<&'a EndpointHints>,
}

impl<'a> Candidate<'a> {
    /// Of two with the same address and port, the one with the higher rank is used, regardless of their order.
    fn rank(&self) -> impl Ord + use<'a> {
        (self.condition, self.is_local, self.hints)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.condition == Condition::Ready
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.endpoint.address
    }

    pub(crate) fn socket(&self) -> SocketAddr {
        (self.endpoint.address, self.endpoint.port).into()
    }
}

/// The serving endpoints of a port in a family, each once: if two slices have the same one, in its better condition.
pub(crate) fn candidates<'a>(
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    port: &ServicePort,
    ipv6: bool,
    viewpoint: &Viewpoint<'_>,
    errors: &mut Vec<InvalidField>,
) -> Vec<Candidate<'a>> {
    let mut found: BTreeMap<(IpAddr, u16), Candidate<'a>> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| slice.address_type == if ipv6 { "IPv6" } else { "IPv4" }) {
        let serves = slice.ports.iter().find(|p| p.name == port.name && p.protocol == port.protocol);
        let Some(number) = serves.and_then(|p| p.port) else { continue };
        for (n, written) in slice.endpoints.iter().enumerate() {
            // All addresses of an endpoint are equivalent, so one is enough.
            let (Some(condition), Some(text)) = (condition(written), written.addresses.first()) else { continue };
            let Ok(address) = text.parse::<IpAddr>() else {
                errors.push(InvalidField {
                    kind: "EndpointSlice",
                    name: slice.metadata.object_name(),
                    field: format!("endpoints[{n}].addresses[0]"),
                    problem: format!("`{text}` is not an address"),
                });
                continue;
            };
            let is_local = written.node_name.as_deref() == Some(viewpoint.node);
            let is_local_pod = is_local && !viewpoint.addresses.contains(&address);
            let endpoint = Endpoint { address, port: number, is_local_pod };
            let candidate = Candidate { endpoint, is_local, condition, hints: written.hints.as_ref() };
            match found.get(&(address, number)) {
                Some(other) if other.rank() >= candidate.rank() => {}
                _ => _ = found.insert((address, number), candidate),
            }
        }
    }
    found.into_values().collect()
}

fn condition(endpoint: &SliceEndpoint) -> Option<Condition> {
    let conditions = &endpoint.conditions;
    if conditions.ready != Some(false) {
        return Some(Condition::Ready);
    }
    let ending = conditions.terminating == Some(true) && conditions.serving != Some(false);
    ending.then_some(Condition::Terminating)
}

/// The selected endpoints by traffic policy.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) anywhere: Box<[Endpoint]>,
    pub(crate) here: Box<[Endpoint]>,
}

/// Selects endpoints for traffic policy `Cluster` if `anywhere`, and for `Local` if `here`: the ready ones or, if there
/// are none, those that are terminating and still serving.
pub(crate) fn choose(candidates: &[Candidate<'_>], viewpoint: &Viewpoint<'_>, anywhere: bool, here: bool) -> Chosen {
    let near = nearness(candidates, viewpoint);
    let of = |condition: Condition, wanted: &dyn Fn(&Candidate<'_>) -> bool| -> Box<[Endpoint]> {
        let chosen = candidates.iter().filter(|c| c.condition == condition && wanted(c));
        ordered(chosen.map(|c| c.endpoint))
    };
    let ready_or_terminating = |ready: &dyn Fn(&Candidate<'_>) -> bool,
                                terminating: &dyn Fn(&Candidate<'_>) -> bool| {
        let chosen = of(Condition::Ready, ready);
        if chosen.is_empty() { of(Condition::Terminating, terminating) } else { chosen }
    };
    let mut chosen = Chosen::default();
    if anywhere {
        chosen.anywhere = ready_or_terminating(&|c| near.allows(c, viewpoint), &|_| true);
    }
    if here {
        let is_local = |c: &Candidate<'_>| c.is_local;
        chosen.here = ready_or_terminating(&is_local, &is_local);
    }
    chosen
}

/// How close an endpoint has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nearness {
    Node,
    Zone,
    Anywhere,
}

/// Topology hints count only if every ready endpoint has some and one of them is for this Node. Otherwise the
/// EndpointSlice controller does not know this Node or has not finished: some endpoints would get more than their share
/// of connections, or this Node would have none.
fn nearness(candidates: &[Candidate<'_>], viewpoint: &Viewpoint<'_>) -> Nearness {
    let ready = || candidates.iter().filter(|c| c.is_ready());
    let counts = |near: Nearness| {
        let hinted = |c: &Candidate<'_>| c.hints.is_some_and(|hints| !near.names(hints).is_empty());
        ready().all(hinted) && ready().any(|c| near.allows(c, viewpoint))
    };
    [Nearness::Node, Nearness::Zone].into_iter().find(|near| counts(*near)).unwrap_or(Nearness::Anywhere)
}

impl Nearness {
    fn names(self, hints: &EndpointHints) -> &[types::service::Hint] {
        match self {
            Nearness::Node => &hints.for_nodes,
            Nearness::Zone => &hints.for_zones,
            Nearness::Anywhere => &[],
        }
    }

    fn allows(self, candidate: &Candidate<'_>, viewpoint: &Viewpoint<'_>) -> bool {
        let ours = match self {
            Nearness::Node => Some(viewpoint.node),
            Nearness::Zone => viewpoint.zone,
            Nearness::Anywhere => return true,
        };
        let named = |hints: &EndpointHints| self.names(hints).iter().any(|hint| Some(hint.name.as_str()) == ours);
        candidate.hints.is_some_and(named)
    }
}
