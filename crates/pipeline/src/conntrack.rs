//! Connection tracking: lookup of a packet's connection, and its commit after all policies have accepted it.

use std::net::IpAddr;

use openflow::action::{Action, Ct, Nat, NatSide, Subfield, Zone};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;

use crate::Pipeline;
use crate::family::{Addressed, Family};
use crate::model::{Address, Datapath, Pod};
use crate::priority;
use crate::regs::{
    CT_ACCEPTED, CT_EGRESS_RULE, CT_GATEWAY, CT_IN_PORT, CT_INGRESS_RULE, CT_OUT_PORT, CT_SERVICE, CT_SNAT,
    EGRESS_RULE, ENDPOINT_SELECTED, FROM_GATEWAY, FROM_POD, INGRESS_RULE, MAY_BE_FORGED, Marked, OUT_PORT, RELATED,
    REWRITE,
};
use crate::tables::Table;

/// Bits of `ct_state`, as in `ovs-fields(7)`.
pub(crate) mod state {
    pub(crate) const NEW: u8 = 0x01;
    pub(crate) const EST: u8 = 0x02;
    pub(crate) const REL: u8 = 0x04;
    pub(crate) const RPL: u8 = 0x08;
    pub(crate) const INV: u8 = 0x10;
    pub(crate) const TRK: u8 = 0x20;
}

/// Conditions on the connection's state, for matches.
pub(crate) trait Tracked {
    /// Adds the condition that the bits `set` are set and the bits `clear` are not.
    #[must_use]
    fn ct(self, set: u8, clear: u8) -> Self;
}

impl Tracked for Match {
    fn ct(self, set: u8, clear: u8) -> Self {
        self.with_masked(Field::CtState, set, set | clear)
    }
}

/// Looks up the connection and continues at `table`; with `nat`, applies the connection's NAT.
pub(crate) fn lookup(zone: u16, table: Table, nat: bool) -> Action {
    let nat = nat.then(Nat::default);
    Action::Ct(Box::new(Ct { zone: Zone::Number(zone), table: Some(table.id()), nat, ..Ct::default() }))
}

/// Commits the connection without recirculation. Later tables see no `ct_state`, but one of the six recirculations that the
/// userspace datapath allows is saved.
fn commit_inline(zone: u16, nat: Option<Nat>, exec: Vec<Action>) -> Action {
    Action::Ct(Box::new(Ct { commit: true, zone: Zone::Number(zone), nat, exec, ..Ct::default() }))
}

/// Commits the connection and continues at `table`, with `ct_state` and translated addresses.
pub(crate) fn commit(zone: u16, table: Table, nat: Option<Nat>, exec: Vec<Action>) -> Action {
    Action::Ct(Box::new(Ct {
        commit: true,
        zone: Zone::Number(zone),
        table: Some(table.id()),
        nat,
        exec,
        ..Ct::default()
    }))
}

fn source(address: IpAddr) -> Option<Nat> {
    Some(Nat { side: Some(NatSide::Src), address: Some(address), ..Nat::default() })
}

impl Pipeline {
    pub(crate) fn conntrack_base(&self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (family, address) in self.node.addresses.iter() {
            flows.push(Table::Conntrack.flow(priority::DISJOINT).when(family.ip()).then(lookup(
                family.dnat_zone(),
                Table::ConntrackState,
                self.has_proxy(),
            )));
            flows.extend(self.commits(family));
            if self.has_proxy() {
                flows.extend(self.states(family));
            }
            if self.has_proxy_all() {
                flows.extend(self.service_commits(family, &address));
                // Only replies to an SNATed connection have such a destination; other packets save the recirculation.
                for translated in [address.virtual_service, address.snat] {
                    flows.push(
                        Table::ServiceConntrack.flow(priority::DISJOINT).when(family.ip().to(translated)).then(lookup(
                            family.snat_zone(),
                            Table::Conntrack,
                            true,
                        )),
                    );
                }
            }
        }
        if self.has_proxy() {
            let tables = [Table::ServiceClassifier, Table::SessionAffinity, Table::ServiceLb];
            let miss = tables.into_iter().filter(|table| self.layout.has(*table));
            flows
                .push(miss.fold(Table::ConntrackState.flow(priority::MISS), |flow, table| flow.then(table.resubmit())));
        }
        if self.has_proxy_all() {
            flows.push(Table::ServiceConntrack.flow(priority::MISS).then(Table::Conntrack.resubmit()));
            flows.push(Table::ServiceConntrackCommit.flow(priority::MISS).then(Table::HairpinSnat.resubmit()));
        }
        flows.push(Table::ConntrackCommit.flow(priority::MISS).then(self.after_commit().resubmit()));
        flows.push(Table::RelatedGuard.flow(priority::MISS));
        for (family, _) in self.node.addresses.iter() {
            let related = family.ip().ct(state::REL | state::TRK, 0).mark(FROM_POD).mark(MAY_BE_FORGED);
            // Above all flows for known connections, below those that drop invalid packets.
            let priority = if self.has_proxy() {
                priority::conntrack_state::CHECK_RELATED
            } else {
                priority::conntrack_state_kube_proxy::CHECK_RELATED
            };
            flows.push(Table::ConntrackState.flow(priority).when(related).then(Table::RelatedGuard.resubmit()));
        }
        flows
    }

    /// An ICMP error bypasses policies, as part of its connection. A Pod may send one about its own connections only: otherwise
    /// it could guess a connection of other Pods and end it, or lower its MTU.
    #[expect(clippy::unused_self, reason = "all compilers have the same signature")]
    pub(crate) fn related_pod(&self, pod: &Pod) -> Vec<Flow> {
        let port = u128::from(pod.port.0);
        // Two priorities, as a Pod's connection to itself matches both.
        let ends = [(priority::related_guard::ORIGIN, CT_IN_PORT), (priority::related_guard::DESTINATION, CT_OUT_PORT)]
            .into_iter();
        ends.map(|(priority, end)| {
            let own = Match::any().with(Field::InPort, pod.port.0).mark(end.holds(port));
            Table::RelatedGuard.flow(priority).when(own).then(RELATED.load()).then(Table::ConntrackState.resubmit())
        })
        .collect()
    }

    /// Selects the next table by the state of the connection.
    fn states(&self, family: Family) -> Vec<Flow> {
        let at = |priority| Table::ConntrackState.flow(priority);
        let known = |matches: Match| matches.ct(state::TRK, state::NEW);
        let egress = self.layout.to([Table::AntreaEgress, Table::EgressRule]);
        vec![
            at(priority::conntrack_state::DROP_INVALID).when(family.ip().ct(state::INV | state::TRK, 0)),
            // Known is not accepted: a connection to a Service is committed before policies are evaluated, and a reply makes it
            // established. So packets pass the tiers, which let accepted connections through.
            at(priority::conntrack_state::KNOWN_SERVICE)
                .when(known(family.ip()).mark(CT_SERVICE))
                .then(REWRITE.load())
                .then(egress.clone()),
            at(priority::conntrack_state::KNOWN).when(known(family.ip())).then(egress.clone()),
            // A further packet before any reply, such as a retransmitted SYN: its endpoint has been selected.
            at(priority::conntrack_state::RETRANSMITTED)
                .when(family.ip().ct(state::NEW | state::TRK, 0).mark(CT_SERVICE))
                .then(REWRITE.load())
                .then(ENDPOINT_SELECTED.load())
                .then(if self.node.datapath == Datapath::Netdev { egress } else { self.translate_again(family) }),
        ]
    }

    /// Applies the DNAT of a connection without a reply, and continues with policies. The kernel's `ct(nat)` translates only
    /// packets of established connections; with `commit` and a type it applies the translation that the connection has.
    fn translate_again(&self, family: Family) -> Action {
        let nat = Some(Nat { side: Some(NatSide::Dst), ..Nat::default() });
        commit(family.dnat_zone(), self.layout.first_of([Table::AntreaEgress, Table::EgressRule]), nat, Vec::new())
    }

    /// The table after the commit.
    fn after_commit(&self) -> Table {
        self.layout.first_of([Table::HairpinSnat, Table::L2ForwardingOut])
    }

    /// Labels of an accepted connection: that it was accepted, its ports, and the rules that allowed it.
    fn acceptance(&self) -> Vec<Action> {
        let out_port = Subfield::new(OUT_PORT.subfield().field(), 0, CT_OUT_PORT.subfield().bits() - 1);
        let mut exec = vec![CT_ACCEPTED.load()];
        exec.push(Action::Move { src: Subfield::whole(Field::InPort), dst: CT_IN_PORT.subfield() });
        exec.extend(out_port.map(|src| Action::Move { src, dst: CT_OUT_PORT.subfield() }));
        if self.node.features.antrea_policy {
            exec.push(Action::Move { src: EGRESS_RULE.subfield(), dst: CT_EGRESS_RULE.subfield() });
            exec.push(Action::Move { src: INGRESS_RULE.subfield(), dst: CT_INGRESS_RULE.subfield() });
        }
        exec
    }

    fn commits(&self, family: Family) -> Vec<Flow> {
        let at = |priority| Table::ConntrackCommit.flow(priority);
        let new = || family.ip().ct(state::NEW | state::TRK, 0);
        let zone = family.dnat_zone();
        let kept =
            |flow: Flow, nat, exec| flow.then(commit_inline(zone, nat, exec)).then(self.after_commit().resubmit());
        // A client may use a port for a Service, and then for its endpoint: replies to both would be equal.
        // On the wire, `nat(src=0.0.0.0)` is SNAT without an address.
        let any_port = Nat { side: Some(NatSide::Src), ..Nat::default() };
        let resolved = || (self.has_proxy() && self.node.all_zero_snat).then(|| any_port.clone());
        let from_gateway: Vec<Action> = [CT_GATEWAY.load()].into_iter().chain(self.acceptance()).collect();
        let mut flows = vec![
            kept(at(priority::conntrack_commit::FROM_GATEWAY).when(new().mark(FROM_GATEWAY)), resolved(), from_gateway),
            kept(at(priority::conntrack_commit::NEW).when(new()), resolved(), self.acceptance()),
        ];
        if self.has_proxy() {
            // The connection was committed by DNAT, before any policy was evaluated.
            let service = new().mark(CT_SERVICE).mark(ENDPOINT_SELECTED);
            flows.push(kept(at(priority::conntrack_commit::SERVICE).when(service), None, self.acceptance()));
            if self.has_proxy_all() {
                let from_gateway = family.ip().mark(CT_SERVICE).mark(FROM_GATEWAY);
                flows.push(
                    at(priority::conntrack_commit::SNAT_SERVICE)
                        .when(from_gateway)
                        .then(Table::ServiceConntrackCommit.resubmit()),
                );
            }
        }
        flows
    }

    /// SNAT of connections from the gateway to Services: replies must return through this Node, whatever the client's address.
    fn service_commits(&self, family: Family, address: &Address) -> Vec<Flow> {
        let at = |priority| Table::ServiceConntrackCommit.flow(priority);
        let new = || family.ip().ct(state::NEW | state::TRK, 0);
        let to = |port: u32| new().mark(OUT_PORT.holds(u128::from(port)));
        // All policies have been evaluated here.
        let accept = |flow: Flow| flow.then(commit_inline(family.dnat_zone(), None, self.acceptance()));
        let snat = |flow, address| {
            accept(flow).then(commit(family.snat_zone(), Table::HairpinSnat, source(address), Vec::new()))
        };
        let mut flows = vec![
            snat(
                at(priority::service_conntrack_commit::TO_GATEWAY).when(to(self.node.gateway.port.0)),
                address.virtual_service,
            ),
            snat(at(priority::service_conntrack_commit::NEW_SNAT).when(new().mark(CT_SNAT)), address.snat),
            at(priority::service_conntrack_commit::KNOWN)
                .when(family.ip().ct(state::TRK, state::NEW | state::RPL))
                .then(lookup(family.snat_zone(), Table::HairpinSnat, true)),
            accept(at(priority::service_conntrack_commit::NEW).when(new())).then(Table::HairpinSnat.resubmit()),
        ];
        flows.extend(
            self.node
                .tunnels
                .iter()
                .map(|tunnel| snat(at(priority::service_conntrack_commit::TO_TUNNEL).when(to(tunnel.0)), address.snat)),
        );
        flows
    }
}
