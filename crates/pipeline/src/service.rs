//! AntreaProxy: from a Service's address to an endpoint's.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::action::{Action, Controller, Learn, LearnSource, LearnSpec, Nat, NatSide, Subfield};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::{Bucket, Group};
use openflow::matching::{Match, eth_type};
use openflow::port::Port;

use crate::Pipeline;
use crate::conntrack::commit;
use crate::family::{Addressed, Family, bits, port_field, proto_number};
use crate::model::{Affinity, Endpoint, EndpointSet, Frontend, FrontendKind, Protocol, ServiceGroup};
use crate::regs::{
    Bits, CT_SERVICE, CT_SNAT_BIT, ENDPOINT_IP, ENDPOINT_IP6, ENDPOINT_LEARN, ENDPOINT_PORT, ENDPOINT_SELECT,
    ENDPOINT_SELECTED, ENDPOINT_STATE, FROM_GATEWAY, FROM_POD, HAIRPIN, Mark, Marked, NODE_PORT, OUT_PORT, REWRITE,
    REWRITE_BIT, SNAT, SNAT_BIT,
};
use crate::tables::Table;

/// In the first byte of the userdata of a packet for the agent: it was sent to a Service that has no endpoints.
pub const USERDATA_NO_ENDPOINT: u8 = 2;
/// The weight of every endpoint.
const WEIGHT: u16 = 100;
/// The table by which Open vSwitch deals connections out has at least so many places, and at most.
const FEWEST_PLACES: usize = 16;
const MOST_PLACES: usize = 256;

fn endpoint_ip(family: Family) -> Bits {
    match family {
        Family::V4 => ENDPOINT_IP,
        Family::V6 => ENDPOINT_IP6,
    }
}

impl FrontendKind {
    fn family(self) -> Family {
        match self {
            FrontendKind::ClusterIp(address) | FrontendKind::External(address) => Family::of(address),
            FrontendKind::NodePort { ipv6: false } => Family::V4,
            FrontendKind::NodePort { ipv6: true } => Family::V6,
        }
    }

    fn is_external(self) -> bool {
        !matches!(self, FrontendKind::ClusterIp(_))
    }
}

impl Pipeline {
    pub(crate) fn service_base(&self) -> Vec<Flow> {
        let policy = self.layout.to([Table::AntreaEgress, Table::EgressRule]);
        let mut flows = vec![
            Table::ServiceHairpin.flow(0).then(self.layout.to([Table::ServiceConntrack, Table::Conntrack])),
            Table::SessionAffinity.flow(0).then(ENDPOINT_SELECT.load()),
            Table::ServiceLb.flow(0).then(Table::EndpointDnat.resubmit()),
            // An endpoint that is gone: another is chosen.
            Table::EndpointDnat
                .flow(190)
                .when(Match::any().mark(ENDPOINT_SELECTED))
                .then(ENDPOINT_SELECT.load())
                .then(Table::ServiceLb.resubmit()),
            Table::EndpointDnat.flow(0).then(policy),
            Table::HairpinSnat.flow(0).then(Table::L2ForwardingOut.resubmit()),
            Table::L2ForwardingOut.flow(210).when(Match::any().mark(HAIRPIN)).then(Action::Output(Port::IN_PORT)),
        ];
        for (family, address) in self.node.addresses.iter() {
            flows.push(
                Table::ServiceHairpin
                    .flow(200)
                    .when(family.ip().to(address.hairpin))
                    .then(Action::Move { src: Subfield::whole(family.src()), dst: Subfield::whole(family.dst()) })
                    .then(HAIRPIN.load())
                    .then(self.layout.to([Table::ServiceConntrack, Table::Conntrack])),
            );
        }
        if self.has_proxy_all() {
            flows.extend(self.node_port_addresses());
            for (family, _) in self.node.addresses.iter() {
                // From the host to the host: the switch sends nothing back by itself.
                let gateway = OUT_PORT.holds(u128::from(self.node.gateway.port.0));
                flows.push(
                    Table::HairpinSnat
                        .flow(200)
                        .when(family.ip().mark(FROM_GATEWAY).mark(gateway))
                        .then(HAIRPIN.load())
                        .then(Table::L2ForwardingOut.resubmit()),
                );
            }
        }
        flows
    }

    fn node_port_addresses(&self) -> Vec<Flow> {
        let own = self.node.addresses.iter().flat_map(|(_, address)| [address.gateway, address.virtual_service]);
        own.chain(self.node.node_port_addresses.iter().copied())
            .map(|address| {
                Table::ServiceClassifier.flow(200).when(Family::of(address).ip().to(address)).then(NODE_PORT.load())
            })
            .collect()
    }

    pub(crate) fn service_frontend(&self, frontend: &Frontend, cookie: u64) -> Vec<Flow> {
        let choose = |priority, matches: Match, group, snat: bool| {
            let state = if frontend.affinity.is_some() { ENDPOINT_LEARN } else { ENDPOINT_SELECTED };
            let mut flow =
                Table::ServiceLb.flow(priority).cookie(cookie).when(matches).then(state.load()).then(REWRITE.load());
            if snat && frontend.kind.is_external() {
                flow = flow.then(SNAT.load());
            }
            flow.then(Action::Group(group))
        };
        let select = || frontend.when(ENDPOINT_SELECT);
        let mut flows: Vec<Flow> = self
            .admitted(frontend, &select())
            .map(|client| match frontend.group {
                Some(group) => choose(200, client, group, frontend.snat),
                None if frontend.drops => Table::ServiceLb.flow(200).cookie(cookie).when(client),
                None => Table::ServiceLb.flow(200).cookie(cookie).when(client).then(refuse()),
            })
            .collect();
        if let Some(group) = frontend.in_cluster_group {
            for client in self.in_cluster_clients(frontend, &select()) {
                flows.push(choose(210, client, group, false));
            }
        }
        let has_endpoints = frontend.group.or(frontend.in_cluster_group).is_some();
        let affinity = frontend.affinity.filter(|_| has_endpoints);
        if let Some(affinity) = affinity {
            flows.push(
                Table::ServiceLb
                    .flow(190)
                    .cookie(cookie)
                    .when(frontend.when(ENDPOINT_LEARN))
                    .then(frontend.learn(affinity, cookie))
                    .then(ENDPOINT_SELECTED.load())
                    .then(Table::EndpointDnat.resubmit()),
            );
        }
        if frontend.clients.is_some() {
            // A client that is remembered has chosen before it gets here, and may have been admitted when others were.
            let at = |priority, matches| Table::ServiceLb.flow(priority).cookie(cookie).when(matches);
            let remembered = frontend.when(ENDPOINT_SELECTED);
            let admitted = self.admitted(frontend, &remembered).filter(|_| affinity.is_some());
            flows.extend(admitted.map(|client| at(186, client).then(Table::EndpointDnat.resubmit())));
            flows.push(at(185, frontend.packets()));
        }
        flows
    }

    pub(crate) fn service_remembered(&self, frontend: &Frontend, endpoints: &EndpointSet, cookie: u64) -> Vec<Flow> {
        let at = |priority, matches| Table::ServiceLb.flow(priority).cookie(cookie).when(matches);
        let mut flows = Vec::new();
        for client in self.admitted(frontend, &frontend.when(ENDPOINT_SELECTED)) {
            let still_there = |endpoint: &Endpoint| {
                at(188, client.clone().mark_endpoint(endpoint)).then(Table::EndpointDnat.resubmit())
            };
            flows.extend(endpoints.iter().map(still_there));
            flows.push(at(187, client.clone()).then(ENDPOINT_SELECT.load()).then(Table::ServiceLb.resubmit()));
        }
        flows
    }

    /// Those packets that come from clients that may use the frontend. The Node is one if its address may, though its packets
    /// have the gateway's, too.
    fn admitted(&self, frontend: &Frontend, packets: &Match) -> impl Iterator<Item = Match> {
        let outside_ranges = |host: &IpAddr| !frontend.admits(*host);
        let node = self.admitted_hosts(frontend).into_iter().filter(outside_ranges);
        let node: Vec<Match> = node.map(|host| packets.clone().mark(FROM_GATEWAY).from(host)).collect();
        frontend.within_ranges(packets).chain(node)
    }

    /// Packets of a Pod of this Node, or of the Node itself, and not of clients outside.
    fn in_cluster_clients(&self, frontend: &Frontend, packets: &Match) -> Vec<Match> {
        let node = self.admitted_hosts(frontend).into_iter();
        let node = node.map(|host| packets.clone().mark(FROM_GATEWAY).from(host));
        frontend.within_ranges(&packets.clone().mark(FROM_POD)).chain(node).collect()
    }

    /// What the Node's own packets have as their source, as far as it may use the frontend.
    fn admitted_hosts(&self, frontend: &Frontend) -> Vec<IpAddr> {
        let of_family = self.node.addresses.iter().filter(|(family, _)| *family == frontend.kind.family());
        of_family
            .flat_map(|(_, own)| {
                let node = frontend.admits(own.node);
                let gateway = node || frontend.admits(own.gateway);
                gateway.then_some(own.gateway).into_iter().chain(node.then_some(own.node))
            })
            .collect()
    }

    pub(crate) fn service_endpoint(&self, protocol: Protocol, endpoint: &Endpoint) -> Vec<Flow> {
        let family = Family::of(endpoint.address);
        let chosen = family.protocol(protocol).mark_endpoint(endpoint).mark(ENDPOINT_SELECTED);
        let nat = Nat {
            side: Some(NatSide::Dst),
            address: Some(endpoint.address),
            port: Some(endpoint.port),
            ..Nat::default()
        };
        // The need to translate the source outlives the first packet: it may come again before there is an answer.
        let exec = vec![CT_SERVICE.load(), Action::Move { src: SNAT_BIT.subfield(), dst: CT_SNAT_BIT.subfield() }];
        let policy = self.layout.first_of([Table::AntreaEgress, Table::EgressRule]);
        let mut flows =
            vec![Table::EndpointDnat.flow(200).when(chosen).then(commit(family.dnat_zone(), policy, Some(nat), exec))];
        if endpoint.is_local_pod {
            flows.extend(self.hairpin(family, endpoint.address));
        }
        flows
    }

    /// A Pod that is its own endpoint needs another source, or it would talk to itself without us.
    fn hairpin(&self, family: Family, address: IpAddr) -> Option<Flow> {
        let (_, own) = self.node.addresses.iter().find(|(f, _)| *f == family)?;
        let itself = family.ip().from(address).to(address);
        Some(
            Table::HairpinSnat
                .flow(200)
                .when(itself)
                .then(Action::set(family.src(), bits(own.hairpin)))
                .then(HAIRPIN.load())
                .then(Table::L2ForwardingOut.resubmit()),
        )
    }

    #[expect(clippy::unused_self, reason = "all compilers are asked the same way")]
    pub(crate) fn service_group(&self, group: &ServiceGroup) -> Group {
        let next = if group.affinity { Table::ServiceLb } else { Table::EndpointDnat };
        let endpoints = group.endpoints.iter().take(ServiceGroup::MAX_ENDPOINTS);
        let (small, mut weights) = (small_part(endpoints.len()), Vec::new());
        for (n, endpoint) in endpoints.enumerate() {
            let part = small.filter(|_| n == 0);
            weights.extend(part.map(|part| (endpoint, part)));
            weights.push((endpoint, WEIGHT - part.unwrap_or(0)));
        }
        let buckets = (0..).zip(weights).map(|(id, (endpoint, weight))| {
            let address = endpoint_ip(Family::of(endpoint.address)).holds(bits(endpoint.address));
            let port = ENDPOINT_PORT.holds(u128::from(endpoint.port));
            let actions = vec![address.load(), port.load(), next.resubmit()];
            Bucket { id, weight: Some(weight), actions, ..Bucket::default() }
        });
        Group::select(group.id, buckets.collect())
    }
}

/// Conditions on the endpoint that was chosen, for matches.
trait Chosen {
    /// And it is this one.
    #[must_use]
    fn mark_endpoint(self, endpoint: &Endpoint) -> Self;
}

impl Chosen for Match {
    fn mark_endpoint(self, endpoint: &Endpoint) -> Self {
        let address = endpoint_ip(Family::of(endpoint.address)).holds(bits(endpoint.address));
        self.mark(address).mark(ENDPOINT_PORT.holds(u128::from(endpoint.port)))
    }
}

/// Open vSwitch deals connections out by a table of 16 places, or as many as the lightest bucket needs to have one. Ten endpoints
/// of one weight have one place or two. So one of them gets a second bucket, with so small a part of its weight that the
/// table has all the 256 places that it can have; where each has the same number of places anyway, or hardly more than one in
/// the largest table, there is none.
fn small_part(endpoints: usize) -> Option<u16> {
    let even = endpoints.is_power_of_two() && endpoints <= FEWEST_PLACES;
    let part = u16::try_from((endpoints * usize::from(WEIGHT)).div_ceil(MOST_PLACES)).ok()?;
    (endpoints > 1 && endpoints <= MOST_PLACES / 2 && !even).then_some(part)
}

/// Nobody answers: the agent tells the client.
fn refuse() -> Action {
    Action::Controller(Box::new(Controller { userdata: vec![USERDATA_NO_ENDPOINT], ..Controller::default() }))
}

impl Frontend {
    /// Packets for this frontend whose choice of an endpoint is in this state.
    fn when(&self, state: Mark) -> Match {
        self.packets().mark(state)
    }

    /// Those packets that come from the ranges of clients that may use the frontend.
    fn within_ranges(&self, packets: &Match) -> impl Iterator<Item = Match> {
        let from = |range: IpNet| packets.clone().within(self.kind.family().src(), range);
        match &self.clients {
            None => vec![packets.clone()].into_iter(),
            // A range within another one would match twice.
            Some(ranges) => {
                let ranges = IpNet::aggregate(&ranges.iter().copied().collect());
                ranges.into_iter().map(from).collect::<Vec<_>>().into_iter()
            }
        }
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.clients.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&client)))
    }

    /// Packets for this frontend.
    fn packets(&self) -> Match {
        let packets = self.kind.family().protocol(self.protocol).with(port_field(self.protocol), self.port);
        match self.kind {
            FrontendKind::ClusterIp(address) | FrontendKind::External(address) => packets.to(address),
            FrontendKind::NodePort { .. } => packets.mark(NODE_PORT),
        }
    }

    /// Remembers the endpoint for the client.
    fn learn(&self, affinity: Affinity, cookie: u64) -> Action {
        let family = self.kind.family();
        let eth = match family {
            Family::V4 => eth_type::IPV4,
            Family::V6 => eth_type::IPV6,
        };
        let is = |field: Field, value: u128| LearnSpec::Match {
            dst: Subfield::whole(field),
            src: LearnSource::Value(value),
        };
        let same = |field: Field| LearnSpec::Match {
            dst: Subfield::whole(field),
            src: LearnSource::Field(Subfield::whole(field)),
        };
        let keep = |bits: Bits| LearnSpec::Load { dst: bits.subfield(), src: LearnSource::Field(bits.subfield()) };
        let load = |bits: Bits, value: u128| LearnSpec::Load { dst: bits.subfield(), src: LearnSource::Value(value) };
        let mut specs = vec![
            is(Field::EthType, u128::from(eth)),
            is(Field::IpProto, u128::from(proto_number(self.protocol))),
            same(port_field(self.protocol)),
            same(family.dst()),
            same(family.src()),
            keep(endpoint_ip(family)),
            keep(ENDPOINT_PORT),
            load(ENDPOINT_STATE, 2),
            load(REWRITE_BIT, 1),
        ];
        if self.snat && self.kind.is_external() {
            specs.push(load(SNAT_BIT, 1));
        }
        Action::Learn(Box::new(Learn {
            table: Table::SessionAffinity.id(),
            priority: 200,
            hard_timeout: u16::try_from(affinity.seconds).unwrap_or(u16::MAX),
            cookie,
            delete_learned: true,
            specs,
            ..Learn::default()
        }))
    }
}
