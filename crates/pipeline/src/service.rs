//! AntreaProxy: from the address of a Service to an endpoint.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::action::{Action, Controller, Learn, LearnSource, LearnSpec, Nat, NatSide, Subfield};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::{Bucket, Group};
use openflow::matching::{Match, eth_type};
use openflow::port::Port;

use crate::Pipeline;
use crate::conntrack::{Tracked, commit, state};
use crate::family::{Addressed, Family, bits, port_field, proto_number};
use crate::fragments::{Fragmented, join};
use crate::model::{Affinity, Endpoint, EndpointSet, FrontendKind, Protocol, ServiceFrontend, ServiceGroup};
use crate::priority;
use crate::regs::{
    Bits, CT_SERVICE, CT_SNAT_BIT, CT_TUNNEL_PORT, ENDPOINT_IP, ENDPOINT_IP6, ENDPOINT_LEARN, ENDPOINT_PORT,
    ENDPOINT_SELECT, ENDPOINT_SELECTED, ENDPOINT_STATE, FROM_GATEWAY, FROM_POD, HAIRPIN, Mark, Marked, NODE_PORT,
    OUT_PORT, REWRITE, REWRITE_BIT, SNAT, SNAT_BIT,
};
use crate::tables::Table;

/// First byte of the userdata of a packet-in: the packet is for a Service without endpoints.
pub const USERDATA_NO_ENDPOINT: u8 = 2;
/// Clients with session affinity per frontend; connections of further clients are balanced individually.
const MAX_LEARNED: u32 = 1024;
/// The weight of every endpoint in a group.
const WEIGHT: u16 = 100;
/// Size of the hash table that Open vSwitch builds for a select group.
const MIN_SLOTS: usize = 16;
const MAX_SLOTS: usize = 256;

fn endpoint_ip(family: Family) -> Bits {
    match family {
        Family::V4 => ENDPOINT_IP,
        Family::V6 => ENDPOINT_IP6,
    }
}

impl Pipeline {
    pub(crate) fn service_base(&self) -> Vec<Flow> {
        let policy = self.layout.to([Table::AntreaEgress, Table::EgressRule]);
        let mut flows = vec![
            Table::ServiceHairpin
                .flow(priority::MISS)
                .then(self.layout.to([Table::ServiceConntrack, Table::Conntrack])),
            Table::SessionAffinity.flow(priority::MISS).then(ENDPOINT_SELECT.load()),
            Table::ServiceLb.flow(priority::MISS).then(Table::EndpointDnat.resubmit()),
            // The selected endpoint was removed: select another.
            Table::EndpointDnat
                .flow(priority::endpoint_dnat::SELECT_AGAIN)
                .when(Match::any().mark(ENDPOINT_SELECTED))
                .then(ENDPOINT_SELECT.load())
                .then(Table::ServiceLb.resubmit()),
            Table::EndpointDnat.flow(priority::MISS).then(policy),
            Table::HairpinSnat.flow(priority::MISS).then(Table::L2ForwardingOut.resubmit()),
            Table::L2ForwardingOut
                .flow(priority::l2_forwarding_out::HAIRPIN)
                .when(Match::any().mark(HAIRPIN))
                .then(Action::Output(Port::IN_PORT)),
        ];
        for (family, address) in self.node.addresses.iter() {
            flows.push(
                Table::ServiceHairpin
                    .flow(priority::DISJOINT)
                    .when(family.ip().to(address.hairpin))
                    .then(Action::Move { src: Subfield::whole(family.src()), dst: Subfield::whole(family.dst()) })
                    .then(HAIRPIN.load())
                    .then(self.layout.to([Table::ServiceConntrack, Table::Conntrack])),
            );
        }
        if self.has_proxy_all() {
            flows.extend(self.node_port_addresses().into_iter().map(|address| {
                let classifier = Table::ServiceClassifier.flow(priority::DISJOINT);
                classifier.when(Family::of(address).ip().to(address)).then(NODE_PORT.load())
            }));
            for (family, _) in self.node.addresses.iter() {
                // From the host to the host: the switch does not output to the input port unless asked to.
                let gateway = OUT_PORT.holds(u128::from(self.node.gateway.port.0));
                flows.push(
                    Table::HairpinSnat
                        .flow(priority::DISJOINT)
                        .when(family.ip().mark(FROM_GATEWAY).mark(gateway))
                        .then(HAIRPIN.load())
                        .then(Table::L2ForwardingOut.resubmit()),
                );
            }
        }
        flows
    }

    /// Addresses on which NodePorts listen.
    pub(crate) fn node_port_addresses(&self) -> Vec<IpAddr> {
        let own = self.node.addresses.iter().flat_map(|(_, address)| [address.gateway, address.virtual_service]);
        own.chain(self.node.node_port_addresses.iter().copied()).collect()
    }

    /// Selects an endpoint for `packets`, and sets the state of selection for the table after the group.
    fn select(&self, frontend: &ServiceFrontend, cookie: u64, packets: Match, selected: Mark) -> Vec<Flow> {
        let packets = packets.mark(ENDPOINT_SELECT);
        let choose = |priority, matches: Match, group, snat: bool| {
            let flow = Table::ServiceLb.flow(priority).cookie(cookie).when(matches);
            let mut flow = flow.then(selected.load()).then(REWRITE.load());
            if snat {
                flow = flow.then(SNAT.load());
            }
            flow.then(Action::Group(group))
        };
        let mut flows: Vec<Flow> = self
            .admitted(frontend, &packets)
            .map(|client| match frontend.group {
                Some(group) => choose(priority::service_lb::SELECT, client, group, frontend.snat()),
                None if frontend.drops => {
                    Table::ServiceLb.flow(priority::service_lb::SELECT).cookie(cookie).when(client)
                }
                None => Table::ServiceLb.flow(priority::service_lb::SELECT).cookie(cookie).when(client).then(refuse()),
            })
            .collect();
        if let Some(group) = frontend.in_cluster_group {
            for client in self.in_cluster_clients(frontend, &packets) {
                flows.push(choose(priority::service_lb::SELECT_IN_CLUSTER, client, group, false));
            }
        }
        flows
    }

    /// First fragments show no port of their own, but that of their connection.
    pub(crate) fn service_first_fragments(&self, frontend: &ServiceFrontend, cookie: u64) -> Vec<Flow> {
        let packets = frontend.first_fragments();
        let mut flows = self.select(frontend, cookie, packets.clone(), ENDPOINT_SELECTED);
        flows.extend(frontend.drop_other_clients(packets, cookie));
        // The copies of the others must not wait in vain: the tracker would forward them some seconds later.
        let is_end = |flow: &Flow| !flow.actions.iter().any(|action| matches!(action, Action::Group(_)));
        for flow in flows.iter_mut().filter(|flow| is_end(flow)) {
            flow.actions.push(join(frontend.family(), None));
        }
        flows
    }

    pub(crate) fn service_frontend(&self, frontend: &ServiceFrontend, cookie: u64) -> Vec<Flow> {
        let selected = if frontend.affinity.is_some() { ENDPOINT_LEARN } else { ENDPOINT_SELECTED };
        let mut flows = self.select(frontend, cookie, frontend.packets(), selected);
        let has_endpoints = frontend.group.or(frontend.in_cluster_group).is_some();
        let affinity = frontend.affinity.filter(|_| has_endpoints);
        if let Some(affinity) = affinity {
            flows.push(
                Table::ServiceLb
                    .flow(priority::service_lb::LEARN)
                    .cookie(cookie)
                    .when(frontend.when(ENDPOINT_LEARN))
                    .then(frontend.learn(affinity, cookie))
                    .then(ENDPOINT_SELECTED.load())
                    .then(Table::EndpointDnat.resubmit()),
            );
        }
        if frontend.frontend.clients.is_some() {
            // A client with a learned endpoint skips selection, and may have been admitted by earlier ranges.
            let at = |priority, matches| Table::ServiceLb.flow(priority).cookie(cookie).when(matches);
            let learned = frontend.when(ENDPOINT_SELECTED);
            let admitted = self.admitted(frontend, &learned).filter(|_| affinity.is_some());
            flows.extend(
                admitted.map(|client| {
                    at(priority::service_lb::ADMITTED_CLIENT, client).then(Table::EndpointDnat.resubmit())
                }),
            );
        }
        flows.extend(frontend.drop_other_clients(frontend.packets(), cookie));
        flows
    }

    pub(crate) fn service_remembered(
        &self,
        frontend: &ServiceFrontend,
        endpoints: &EndpointSet,
        cookie: u64,
    ) -> Vec<Flow> {
        let at = |priority, matches| Table::ServiceLb.flow(priority).cookie(cookie).when(matches);
        let mut flows = Vec::new();
        for client in self.admitted(frontend, &frontend.when(ENDPOINT_SELECTED)) {
            let still_there = |endpoint: &Endpoint| {
                at(priority::service_lb::KEEP_LEARNED, client.clone().mark_endpoint(endpoint))
                    .then(Table::EndpointDnat.resubmit())
            };
            flows.extend(endpoints.iter().map(still_there));
            flows.push(
                at(priority::service_lb::SELECT_AGAIN, client.clone())
                    .then(ENDPOINT_SELECT.load())
                    .then(Table::ServiceLb.resubmit()),
            );
        }
        flows
    }

    /// Matches packets from clients that may use the frontend. The Node may use it if its address may, even though its packets
    /// can have the gateway's address.
    fn admitted(&self, frontend: &ServiceFrontend, packets: &Match) -> impl Iterator<Item = Match> {
        let outside_ranges = |host: &IpAddr| !frontend.admits(*host);
        let node = self.admitted_hosts(frontend).into_iter().filter(outside_ranges);
        let node: Vec<Match> = node.map(|host| packets.clone().mark(FROM_GATEWAY).from(host)).collect();
        frontend.within_ranges(packets).chain(node)
    }

    /// Matches packets from Pods of this Node and from the Node itself, not from clients outside.
    fn in_cluster_clients(&self, frontend: &ServiceFrontend, packets: &Match) -> Vec<Match> {
        let node = self.admitted_hosts(frontend).into_iter();
        let node = node.map(|host| packets.clone().mark(FROM_GATEWAY).from(host));
        frontend.within_ranges(&packets.clone().mark(FROM_POD)).chain(node).collect()
    }

    /// Source addresses of the Node's own packets that may use the frontend.
    fn admitted_hosts(&self, frontend: &ServiceFrontend) -> Vec<IpAddr> {
        let of_family = self.node.addresses.iter().filter(|(family, _)| *family == frontend.family());
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
        // The need for SNAT is kept in the mark, for retransmissions of the first packet.
        let mut exec = vec![CT_SERVICE.load(), Action::Move { src: SNAT_BIT.subfield(), dst: CT_SNAT_BIT.subfield() }];
        if self.is_tunnel_port(protocol, endpoint) {
            exec.push(CT_TUNNEL_PORT.load());
        }
        let policy = self.layout.first_of([Table::AntreaEgress, Table::EgressRule]);
        let mut flows = vec![Table::EndpointDnat.flow(priority::endpoint_dnat::TRANSLATE).when(chosen).then(commit(
            family.dnat_zone(),
            policy,
            Some(nat),
            exec,
        ))];
        if endpoint.is_local_pod {
            flows.extend(self.hairpin(family, endpoint.address));
        }
        flows
    }

    /// A Pod that is its own endpoint needs another source, or its reply would not leave the Pod.
    fn hairpin(&self, family: Family, address: IpAddr) -> Option<Flow> {
        let (_, own) = self.node.addresses.iter().find(|(f, _)| *f == family)?;
        let itself = family.ip().from(address).to(address);
        Some(
            Table::HairpinSnat
                .flow(priority::DISJOINT)
                .when(itself)
                .then(Action::set(family.src(), bits(own.hairpin)))
                .then(HAIRPIN.load())
                .then(Table::L2ForwardingOut.resubmit()),
        )
    }

    #[expect(clippy::unused_self, reason = "all compilers have the same signature")]
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

/// Conditions on the selected endpoint, for matches.
trait Selected {
    /// Adds the condition that this endpoint was selected.
    #[must_use]
    fn mark_endpoint(self, endpoint: &Endpoint) -> Self;
}

impl Selected for Match {
    fn mark_endpoint(self, endpoint: &Endpoint) -> Self {
        let address = endpoint_ip(Family::of(endpoint.address)).holds(bits(endpoint.address));
        self.mark(address).mark(ENDPOINT_PORT.holds(u128::from(endpoint.port)))
    }
}

/// Weight of an extra bucket that improves balancing, if one is needed.
///
/// Open vSwitch assigns the buckets of a group to a hash table with 16 slots, or more if the lightest bucket would get none.
/// With 16 slots, ten endpoints of equal weight have one slot or two. So the first endpoint gets a second bucket with a part of
/// its weight that is small enough to enlarge the table to its maximum of 256 slots. This is not needed if the endpoints
/// divide 16, and useless if there are more than half as many endpoints as slots.
fn small_part(endpoints: usize) -> Option<u16> {
    let even = endpoints.is_power_of_two() && endpoints <= MIN_SLOTS;
    let part = u16::try_from((endpoints * usize::from(WEIGHT)).div_ceil(MAX_SLOTS)).ok()?;
    (endpoints > 1 && endpoints <= MAX_SLOTS / 2 && !even).then_some(part)
}

/// Sends the packet to the agent, which rejects the connection.
fn refuse() -> Action {
    Action::Controller(Box::new(Controller { userdata: vec![USERDATA_NO_ENDPOINT], ..Controller::default() }))
}

impl ServiceFrontend {
    pub(crate) fn family(&self) -> Family {
        match self.frontend.kind {
            FrontendKind::ClusterIp(address) | FrontendKind::External(address) => Family::of(address),
            FrontendKind::NodePort { ipv6: false } => Family::V4,
            FrontendKind::NodePort { ipv6: true } => Family::V6,
        }
    }

    /// Whether connections from outside get SNAT, so that the client's address is lost: their endpoint may be on
    /// another Node, which has to reply through this one.
    fn snat(&self) -> bool {
        self.frontend.kind.is_external() && !self.frontend.local_only
    }

    /// Packets for this frontend in this state of endpoint selection.
    fn when(&self, state: Mark) -> Match {
        self.packets().mark(state)
    }

    /// Those of `packets` with a source in `loadBalancerSourceRanges`.
    fn within_ranges(&self, packets: &Match) -> impl Iterator<Item = Match> {
        let from = |range: IpNet| packets.clone().within(self.family().src(), range);
        match &self.frontend.clients {
            None => vec![packets.clone()].into_iter(),
            // Nested ranges would match twice.
            Some(ranges) => {
                let ranges = IpNet::aggregate(&ranges.iter().copied().collect());
                ranges.into_iter().map(from).collect::<Vec<_>>().into_iter()
            }
        }
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.frontend.clients.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&client)))
    }

    /// Drops `packets` of clients that `loadBalancerSourceRanges` do not admit.
    fn drop_other_clients(&self, packets: Match, cookie: u64) -> Option<Flow> {
        let drop = || Table::ServiceLb.flow(priority::service_lb::DROP_OTHER_CLIENTS).cookie(cookie).when(packets);
        self.frontend.clients.is_some().then(drop)
    }

    /// Packets to the address and port of this frontend.
    fn packets(&self) -> Match {
        let packets = self.family().protocol(self.protocol).with(port_field(self.protocol), self.frontend.port);
        self.to_address(packets)
    }

    /// First fragments to the address and port of this frontend: their own port is 0, and the connection has the real one.
    fn first_fragments(&self) -> Match {
        let packets = self.family().protocol(self.protocol).first_fragment().with(port_field(self.protocol), 0u8);
        let tracked = packets.ct(state::TRK, state::INV).with(Field::CtNwProto, proto_number(self.protocol));
        self.to_address(tracked.with(Field::CtTpDst, self.frontend.port))
    }

    fn to_address(&self, packets: Match) -> Match {
        match self.frontend.kind {
            FrontendKind::ClusterIp(address) | FrontendKind::External(address) => packets.to(address),
            FrontendKind::NodePort { .. } => packets.mark(NODE_PORT),
        }
    }

    /// Learns the endpoint of this client, for session affinity.
    fn learn(&self, affinity: Affinity, cookie: u64) -> Action {
        let family = self.family();
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
        if self.snat() {
            specs.push(load(SNAT_BIT, 1));
        }
        Action::Learn(Box::new(Learn {
            table: Table::SessionAffinity.id(),
            priority: priority::DISJOINT,
            hard_timeout: u16::try_from(affinity.seconds).unwrap_or(u16::MAX),
            cookie,
            delete_learned: true,
            limit: MAX_LEARNED,
            specs,
            ..Learn::default()
        }))
    }
}
