//! Where connections go: of the endpoints that slices name, those that should get any.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use types::service::{EndpointHints, EndpointSlice, ServicePort, SliceEndpoint};
use types::{InvalidField, ObjectName};

use crate::viewpoint::Viewpoint;
use crate::{Endpoint, ordered};

/// How an endpoint is; the better the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Condition {
    /// About to end, and still answering.
    Ending,
    Ready,
}

/// An endpoint that may get connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) endpoint: Endpoint,
    condition: Condition,
    hints: Option<&'a EndpointHints>,
}

impl Candidate<'_> {
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

/// The endpoints of a port in a family that answer, each once: where two slices name one, in its better condition.
pub(crate) fn candidates<'a>(
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    port: &ServicePort,
    ipv6: bool,
    node: &str,
    errors: &mut Vec<InvalidField>,
) -> Vec<Candidate<'a>> {
    let mut found: BTreeMap<(IpAddr, u16), Candidate<'a>> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| slice.address_type == if ipv6 { "IPv6" } else { "IPv4" }) {
        let serves = slice.ports.iter().find(|p| p.name == port.name && p.protocol == port.protocol);
        let Some(number) = serves.and_then(|p| p.port) else { continue };
        for (n, written) in slice.endpoints.iter().enumerate() {
            // All its addresses are the same to clients, so one is enough.
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
            let is_local = written.node_name.as_deref() == Some(node);
            let endpoint = Endpoint { address, port: number, is_local, pod: pod_of(written) };
            let candidate = Candidate { endpoint, condition, hints: written.hints.as_ref() };
            let order = |c: &Candidate<'_>| (c.condition, c.endpoint.clone());
            match found.get(&(address, number)) {
                Some(other) if order(other) >= order(&candidate) => {}
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
    ending.then_some(Condition::Ending)
}

fn pod_of(endpoint: &SliceEndpoint) -> Option<ObjectName> {
    let target = endpoint.target_ref.as_ref().filter(|target| target.kind == "Pod")?;
    Some(ObjectName { namespace: target.namespace.clone(), name: target.name.clone() })
}

/// Endpoints by who may be meant.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) anywhere: Box<[Endpoint]>,
    pub(crate) here: Box<[Endpoint]>,
}

/// Chooses, for policy `Cluster` where `anywhere`, for policy `Local` where `here`: those that are ready, and while there are
/// none, those that are about to end.
pub(crate) fn choose(candidates: &[Candidate<'_>], viewpoint: &Viewpoint<'_>, anywhere: bool, here: bool) -> Chosen {
    let near = nearness(candidates, viewpoint);
    let of = |condition: Condition, wanted: &dyn Fn(&Candidate<'_>) -> bool| -> Box<[Endpoint]> {
        let chosen = candidates.iter().filter(|c| c.condition == condition && wanted(c));
        ordered(chosen.map(|c| c.endpoint.clone()))
    };
    let ready_or_ending = |ready: &dyn Fn(&Candidate<'_>) -> bool, ending: &dyn Fn(&Candidate<'_>) -> bool| {
        let chosen = of(Condition::Ready, ready);
        if chosen.is_empty() { of(Condition::Ending, ending) } else { chosen }
    };
    let mut chosen = Chosen::default();
    if anywhere {
        chosen.anywhere = ready_or_ending(&|c| near.allows(c, viewpoint), &|_| true);
    }
    if here {
        let is_local = |c: &Candidate<'_>| c.endpoint.is_local;
        chosen.here = ready_or_ending(&is_local, &is_local);
    }
    chosen
}

/// Who is near enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nearness {
    Node,
    Zone,
    Anywhere,
}

/// Hints count only if every endpoint that is ready has some, and one of them is for us: otherwise whoever wrote them did not
/// know of us, or has not come to it yet, and some endpoints would get more than their share or we would get none.
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
