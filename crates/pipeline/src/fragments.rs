//! Services reached by fragmented packets, on the userspace datapath.
//!
//! That datapath reassembles a packet for its tracker only, and then forwards the fragments. All of them show the addresses of
//! the connection, but only the first one its ports. The fragment that completes a packet decides the translation of all of
//! them, and that is the last to arrive. So the first fragment is made to arrive last. While it waits for the others in a zone
//! of its own ([`Family::fragment_zone`]), copies of the others wait in the zone of DNAT, for it alone:
//!
//! 1. A lookup of the connection lets all fragments through together. The first enters the zone of fragments and waits there.
//! 2. Of the others a copy enters the zone of DNAT and waits there, then the fragment itself enters the zone of fragments.
//! 3. The last one completes the packet in the zone of fragments. Now the copies are not needed twice: the fragments themselves
//!    are dropped, but for the first. It selects an endpoint by its port, enters the zone of DNAT, and completes the packet there.
//!    If it is for no Service, it does so before policies are evaluated; if it is refused or dropped, to discard the copies.
//!
//! The tracker puts fragments together only if they have the same recirculation id. It stands for the table and the registers,
//! so both zones are entered from `ConntrackState` with the registers as the first lookup left them, and nothing recirculates
//! until DNAT: the group hashes fields, since `dp_hash` would recirculate.
//!
//! Fragments of known connections, and packets that are not fragmented, match none of these flows.

use openflow::action::{Action, Ct, Zone};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::{Group, Selection};
use openflow::matching::Match;

use crate::Pipeline;
use crate::conntrack::{Tracked, lookup, state};
use crate::family::{Addressed, Family};
use crate::model::{Datapath, FrontendKind, Protocol, ServiceFrontend, ServiceGroup};
use crate::priority;
use crate::tables::Table;

/// Both bits of `ip_frag`: whether it is a fragment, and whether it is a later one.
const FRAGMENT_BITS: u8 = 3;
const FIRST: u8 = 1;
const LATER: u8 = 3;

/// Conditions on fragments, for matches.
pub(crate) trait Fragmented {
    /// Adds the condition that the packet is the first fragment.
    #[must_use]
    fn first_fragment(self) -> Self;
    /// Adds the condition that the packet is a fragment, but not the first.
    #[must_use]
    fn later_fragment(self) -> Self;
}

impl Fragmented for Match {
    fn first_fragment(self) -> Self {
        self.with_masked(Field::IpFrag, FIRST, FRAGMENT_BITS)
    }

    fn later_fragment(self) -> Self {
        self.with_masked(Field::IpFrag, LATER, FRAGMENT_BITS)
    }
}

/// Lets a first fragment enter the zone of DNAT, where copies of the others wait for it.
pub(crate) fn join(family: Family, table: Option<Table>) -> Action {
    let zone = Zone::Number(family.dnat_zone());
    Action::Ct(Box::new(Ct { zone, table: table.map(Table::id), ..Ct::default() }))
}

impl Pipeline {
    /// Whether fragments to Services with this protocol have flows and groups of their own. The kernel's datapath forwards
    /// reassembled packets, TCP sends no fragments, and the userspace datapath does not see ports of SCTP.
    pub fn serves_fragments(&self, protocol: Protocol) -> bool {
        self.has_proxy() && self.node.datapath == Datapath::Netdev && protocol == Protocol::Udp
    }

    pub(crate) fn fragment_base(&self) -> Vec<Flow> {
        if !self.serves_fragments(Protocol::Udp) {
            return Vec::new();
        }
        let complete = |family: Family| family.ip().with(Field::CtZone, family.fragment_zone()).later_fragment();
        let drop = |matches| Table::ConntrackState.flow(priority::conntrack_state::FRAGMENT).when(matches);
        let policy = self.layout.first_of([Table::AntreaEgress, Table::EgressRule]);
        let for_no_service = |family: Family| {
            let first = family.ip().with(Field::CtZone, family.fragment_zone()).first_fragment();
            Table::EndpointDnat.flow(priority::endpoint_dnat::FRAGMENT).when(first).then(join(family, Some(policy)))
        };
        let families = || self.node.addresses.iter().map(|(family, _)| family);
        families().flat_map(|family| [drop(complete(family)), for_no_service(family)]).collect()
    }

    /// Lets the first fragment to the addresses of a frontend arrive after the others. The flows of frontends with a common
    /// address are equal.
    pub(crate) fn fragments_in_order(&self, frontend: &ServiceFrontend) -> Vec<Flow> {
        let family = frontend.family();
        let addresses = match frontend.frontend.kind {
            FrontendKind::ClusterIp(address) | FrontendKind::External(address) => vec![address],
            FrontendKind::NodePort { .. } => self.node_port_addresses(),
        };
        let wait = || lookup(family.fragment_zone(), Table::ConntrackState, false);
        let to = |address| {
            let new = family.ip().to(address).ct(state::NEW | state::TRK, 0).with(Field::CtZone, family.dnat_zone());
            let at = |matches| Table::ConntrackState.flow(priority::conntrack_state::FRAGMENT).when(matches);
            // Fragments of every protocol: only first ones show it in IPv6.
            [
                at(new.clone().first_fragment()).then(wait()),
                at(new.later_fragment()).then(Action::Clone(vec![join(family, None)])).then(wait()),
            ]
        };
        addresses.into_iter().filter(|address| Family::of(*address) == family).flat_map(to).collect()
    }

    /// As [`Pipeline::service_group`], for first fragments: without recirculation, and without learning.
    pub(crate) fn first_fragment_group(&self, group: &ServiceGroup) -> Group {
        let family = group.endpoints.first().map_or(Family::V4, |endpoint| Family::of(endpoint.address));
        let mut fields = Match::any();
        fields.set(family.src(), family.src().full_mask(), family.src().full_mask());
        if !group.affinity {
            fields.set(Field::CtTpSrc, Field::CtTpSrc.full_mask(), Field::CtTpSrc.full_mask());
        }
        let selection = Some(Selection { method: "hash".to_owned(), fields, ..Selection::default() });
        Group { selection, ..self.service_group(&ServiceGroup { affinity: false, ..group.clone() }) }
    }
}
