//! Connections: finding a packet's, and remembering it once all policies have accepted it.

use std::net::IpAddr;

use openflow::action::{Action, Ct, Nat, NatSide, Zone};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;

use crate::Pipeline;
use crate::family::{Addressed, Family};
use crate::model::Address;
use crate::regs::{
    CT_ACCEPTED, CT_EGRESS_RULE, CT_GATEWAY, CT_INGRESS_RULE, CT_SERVICE, CT_SNAT, EGRESS_RULE, ENDPOINT_SELECTED,
    FROM_GATEWAY, INGRESS_RULE, Marked, OUT_PORT, REWRITE,
};
use crate::tables::Table;

/// Bits of `ct_state`.
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
    /// And `set` are set, `clear` are not.
    #[must_use]
    fn ct(self, set: u8, clear: u8) -> Self;
}

impl Tracked for Match {
    fn ct(self, set: u8, clear: u8) -> Self {
        self.with_masked(Field::CtState, set, set | clear)
    }
}

/// Through the tracker and on to `table`, translated as the connection was.
fn lookup(zone: u16, table: Table, nat: bool) -> Action {
    let nat = nat.then(Nat::default);
    Action::Ct(Box::new(Ct { zone: Zone::Number(zone), table: Some(table.id()), nat, ..Ct::default() }))
}

/// Remembers the connection. What follows knows nothing of it any more, but a trip through the datapath is saved, of which
/// a packet in userspace has six.
fn remember(zone: u16, exec: Vec<Action>) -> Action {
    Action::Ct(Box::new(Ct { commit: true, zone: Zone::Number(zone), exec, ..Ct::default() }))
}

/// Remembers the connection and goes on at `table`, where it is asked about, or the packet has been translated.
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
            flows.push(Table::Conntrack.flow(200).when(family.ip()).then(lookup(
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
                // Only replies to a translated source have such a destination; the others spare the trip.
                for translated in [address.virtual_service, address.snat] {
                    flows.push(Table::ServiceConntrack.flow(200).when(family.ip().to(translated)).then(lookup(
                        family.snat_zone(),
                        Table::Conntrack,
                        true,
                    )));
                }
            }
        }
        if self.has_proxy() {
            let tables = [Table::ServiceClassifier, Table::SessionAffinity, Table::ServiceLb];
            let miss = tables.into_iter().filter(|table| self.layout.has(*table));
            flows.push(miss.fold(Table::ConntrackState.flow(0), |flow, table| flow.then(table.resubmit())));
        }
        if self.has_proxy_all() {
            flows.push(Table::ServiceConntrack.flow(0).then(Table::Conntrack.resubmit()));
            flows.push(Table::ServiceConntrackCommit.flow(0).then(Table::HairpinSnat.resubmit()));
        }
        flows.push(Table::ConntrackCommit.flow(0).then(self.after_commit().resubmit()));
        flows
    }

    /// What is known of a packet's connection decides where it goes on.
    fn states(&self, family: Family) -> Vec<Flow> {
        let at = |priority| Table::ConntrackState.flow(priority);
        let known = |matches: Match| matches.ct(state::TRK, state::NEW);
        let egress = self.layout.to([Table::AntreaEgress, Table::EgressRule]);
        vec![
            at(210).when(family.ip().ct(state::INV | state::TRK, 0)),
            // Known is not accepted: a connection to a Service is remembered before policies are asked, and a reply makes it
            // known. So tiers are asked too; what they have accepted passes there.
            at(200).when(known(family.ip()).mark(CT_SERVICE)).then(REWRITE.load()).then(egress.clone()),
            at(190).when(known(family.ip())).then(egress.clone()),
            // A first packet that is sent again before the answer: its endpoint has been chosen.
            at(180)
                .when(family.ip().ct(state::NEW | state::TRK, 0).mark(CT_SERVICE))
                .then(REWRITE.load())
                .then(ENDPOINT_SELECTED.load())
                .then(egress),
        ]
    }

    /// Where packets go on once their connection is remembered.
    fn after_commit(&self) -> Table {
        self.layout.first_of([Table::HairpinSnat, Table::L2ForwardingOut])
    }

    /// What is remembered of an accepted connection: that it was, and by which rules.
    fn acceptance(&self) -> Vec<Action> {
        let mut exec = vec![CT_ACCEPTED.load()];
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
        let kept = |flow: Flow, exec| flow.then(remember(zone, exec)).then(self.after_commit().resubmit());
        let from_gateway: Vec<Action> = [CT_GATEWAY.load()].into_iter().chain(self.acceptance()).collect();
        let mut flows = vec![
            kept(at(200).when(new().mark(FROM_GATEWAY)), from_gateway),
            kept(at(190).when(new()), self.acceptance()),
        ];
        if self.has_proxy() {
            // The connection was committed when its destination was translated, before any policy was asked.
            let service = new().mark(CT_SERVICE).mark(ENDPOINT_SELECTED);
            flows.push(kept(at(205).when(service), self.acceptance()));
            if self.has_proxy_all() {
                let from_gateway = family.ip().mark(CT_SERVICE).mark(FROM_GATEWAY);
                flows.push(at(210).when(from_gateway).then(Table::ServiceConntrackCommit.resubmit()));
            }
        }
        flows
    }

    /// Connections to Services that came in by the gateway: the reply has to come back here, whoever the client is.
    fn service_commits(&self, family: Family, address: &Address) -> Vec<Flow> {
        let at = |priority| Table::ServiceConntrackCommit.flow(priority);
        let new = || family.ip().ct(state::NEW | state::TRK, 0);
        let to = |port: u32| new().mark(OUT_PORT.holds(u128::from(port)));
        // Accepted, as policies have been asked.
        let accept = |flow: Flow| flow.then(remember(family.dnat_zone(), self.acceptance()));
        let snat = |flow, address| {
            accept(flow).then(commit(family.snat_zone(), Table::HairpinSnat, source(address), Vec::new()))
        };
        let mut flows = vec![
            snat(at(210).when(to(self.node.gateway.port.0)), address.virtual_service),
            snat(at(200).when(new().mark(CT_SNAT)), address.snat),
            at(200).when(family.ip().ct(state::TRK, state::NEW | state::RPL)).then(lookup(
                family.snat_zone(),
                Table::HairpinSnat,
                true,
            )),
            accept(at(190).when(new())).then(Table::HairpinSnat.resubmit()),
        ];
        flows.extend(self.node.tunnels.iter().map(|tunnel| snat(at(205).when(to(tunnel.0)), address.snat)));
        flows
    }
}
