//! Priorities of flows, by table, from the highest to the lowest. Of all flows of a table that match a packet, the one with
//! the highest priority applies.
//!
//! Flows of equal priority in one table should not match the same packet: a test checks this and lists the exceptions. The
//! numbers are those of the reference flows under `scenarios/pipeline` where those have the flow.

use std::ops::RangeInclusive;

/// Table miss: no other flow matches.
pub(crate) const MISS: u16 = 0;
/// For rules in tiers that come before Kubernetes policies: below `tier::TO_ITSELF`.
pub const TIER_PRIORITIES: RangeInclusive<u16> = 100..=tier::TO_ITSELF - 1;
/// For rules in the baseline tier: below `default::DROP_ISOLATED`.
pub const BASELINE_PRIORITIES: RangeInclusive<u16> = 10..=180;
/// For flows that need no order: no packet matches two of them.
pub(crate) const DISJOINT: u16 = 200;

pub(crate) mod classifier {
    /// Above `HOST_PORT`, which forwards all other packets of the uplink to the host.
    pub(crate) const UPLINK_TO_PODS: u16 = 210;
    /// Ports that exist once per Node: gateway, tunnel, uplink and local port.
    pub(crate) const HOST_PORT: u16 = 200;
    pub(crate) const POD_PORT: u16 = 190;
}

pub(crate) mod spoof_guard {
    /// Above everything: the flows below do not match on VLANs and would accept tagged frames.
    pub(crate) const DROP_TAGGED: u16 = 230;
    /// Above all flows that accept IP packets.
    pub(crate) const DROP_LOOPBACK: u16 = 225;
    /// Above `NEIGHBOUR_DISCOVERY`: a malformed message looks like a valid one without options.
    pub(crate) const DROP_MALFORMED_DISCOVERY: u16 = 215;
    pub(crate) const NEIGHBOUR_DISCOVERY: u16 = 210;
    /// The rest of neighbour discovery; above `SOURCE`, which would accept it as IPv6 packets.
    pub(crate) const DROP_OTHER_DISCOVERY: u16 = 209;
    /// The gateway's own address, which is in a Pod subnet: above `DROP_PODS_FROM_GATEWAY`.
    pub(crate) const GATEWAY_ADDRESS: u16 = 208;
    /// Pod sources that cannot arrive from the gateway: above `SOURCE`, which accepts any source from there.
    pub(crate) const DROP_PODS_FROM_GATEWAY: u16 = 205;
    /// Packets with the address that their port may use.
    pub(crate) const SOURCE: u16 = 200;
    /// Decapsulated packets of known peers.
    pub(crate) const TUNNEL_SOURCE: u16 = 190;
}

/// In `ArpResponder` and `NdResponder`.
pub(crate) mod responder {
    /// A Pod that announces or probes its own address: above `ANSWER`, which would report the address as taken.
    pub(crate) const DUPLICATE_ADDRESS_PROBE: u16 = 210;
    /// Addresses for which the switch answers.
    pub(crate) const ANSWER: u16 = 200;
    /// All other messages are switched like ordinary Ethernet.
    pub(crate) const FORWARD: u16 = 190;
}

/// In `ConntrackState`, with AntreaProxy.
pub(crate) mod conntrack_state {
    /// Above everything: an invalid packet matches the flows of its connection too.
    pub(crate) const DROP_INVALID: u16 = 210;
    /// ICMP errors from Pods: above all flows for known connections.
    pub(crate) const CHECK_RELATED: u16 = 205;
    /// Known connections to Services: above `KNOWN`.
    pub(crate) const KNOWN_SERVICE: u16 = 200;
    pub(crate) const KNOWN: u16 = 190;
    /// A retransmitted first packet of a connection to a Service.
    pub(crate) const RETRANSMITTED: u16 = 180;
    /// Fragments of new connections to Services.
    pub(crate) const FRAGMENT: u16 = 170;
}

/// In `ConntrackState`, with kube-proxy.
pub(crate) mod conntrack_state_kube_proxy {
    /// Above everything: an invalid packet matches the flows of its connection too.
    pub(crate) const DROP_INVALID: u16 = 220;
    /// ICMP errors from Pods: above all flows for known connections.
    pub(crate) const CHECK_RELATED: u16 = 215;
    /// Packets from the gateway in connections that the gateway opened: above `TO_GATEWAY`, which would return them.
    pub(crate) const FROM_GATEWAY: u16 = 210;
    /// Replies in connections that the gateway opened.
    pub(crate) const TO_GATEWAY: u16 = 200;
}

pub(crate) mod related_guard {
    /// The Pod opened the connection. Above `DESTINATION`, as a Pod's connection to itself matches both.
    pub(crate) const ORIGIN: u16 = 200;
    pub(crate) const DESTINATION: u16 = 190;
}

pub(crate) mod service_lb {
    /// Clients in the cluster, which `externalTrafficPolicy: Local` does not restrict: above `SELECT`.
    pub(crate) const SELECT_IN_CLUSTER: u16 = 210;
    /// Selects an endpoint, or refuses the connection.
    pub(crate) const SELECT: u16 = 200;
    /// Learns the endpoint that a group has selected, for session affinity.
    pub(crate) const LEARN: u16 = 190;
    /// The learned endpoint still backs the frontend: above `SELECT_AGAIN`.
    pub(crate) const KEEP_LEARNED: u16 = 188;
    /// The learned endpoint no longer backs the frontend.
    pub(crate) const SELECT_AGAIN: u16 = 187;
    /// Clients in `loadBalancerSourceRanges`, whatever their endpoint: above `DROP_OTHER_CLIENTS`.
    pub(crate) const ADMITTED_CLIENT: u16 = 186;
    /// Clients outside of `loadBalancerSourceRanges`: below all flows that serve admitted clients.
    pub(crate) const DROP_OTHER_CLIENTS: u16 = 185;
}

pub(crate) mod endpoint_dnat {
    pub(crate) const TRANSLATE: u16 = 200;
    /// The selected endpoint has no flow, so it is gone.
    pub(crate) const SELECT_AGAIN: u16 = 190;
    /// First fragments for no Service.
    pub(crate) const FRAGMENT: u16 = 180;
}

/// The tables of tiers and of the baseline, where rules choose their own priorities.
pub(crate) mod tier {
    /// The host's probes of its Pods: above `ACCEPTED`, since an established probe matches both.
    pub(crate) const FROM_HOST: u16 = ACCEPTED + 1;
    /// Accepted connections stay accepted, whatever rules say now. Rules end at least two below.
    pub(crate) const ACCEPTED: u16 = 64990;
    /// A Pod's packets to itself: above every rule.
    pub(crate) const TO_ITSELF: u16 = ACCEPTED - 1;
}

/// `EgressRule` and `IngressRule`: Kubernetes NetworkPolicies.
pub(crate) mod rule {
    /// Accepted connections and the host's probes: above every rule.
    pub(crate) const ACCEPTED: u16 = 210;
    /// A Pod's packets to itself: above every rule.
    pub(crate) const TO_ITSELF: u16 = 205;
    /// The clauses of conjunctions.
    pub(crate) const CLAUSE: u16 = 200;
    /// Matches `conj_id`, which the switch sets once all clauses of a rule match, so it competes with no clause.
    pub(crate) const VERDICT: u16 = 190;
}

/// In `EgressDefault` and `IngressDefault`.
pub(crate) mod default {
    /// Above rules of the baseline tier, which do not apply to isolated Pods.
    pub(crate) const DROP_ISOLATED: u16 = 200;
}

/// In `EgressMetric` and `IngressMetric`.
pub(crate) mod metric {
    /// Above `ALLOWED`: a denied packet goes no further, even if an earlier rule allowed it.
    pub(crate) const DENIED: u16 = 210;
    pub(crate) const ALLOWED: u16 = 200;
}

pub(crate) mod tunnel_guard {
    /// Connections translated to a tunnel port, with all their fragments.
    pub(crate) const DROP_TRANSLATED: u16 = 210;
    pub(crate) const DROP_PORT: u16 = 200;
    /// Fragments have port 0 and are recognised by their connection.
    pub(crate) const DROP_FRAGMENT: u16 = 190;
}

pub(crate) mod l3_forwarding {
    /// Above every flow that forwards.
    pub(crate) const DROP_LOOPBACK: u16 = 230;
    /// Packets for addresses of Nodes: above every flow that forwards them.
    pub(crate) const TUNNEL_GUARD: u16 = 220;
    /// Replies in connections that the gateway opened, whatever their destination.
    pub(crate) const REPLY_TO_GATEWAY: u16 = 210;
    /// Destinations for which MAC addresses are rewritten: local Pods and gateway, subnets of peers.
    pub(crate) const ROUTE: u16 = 200;
    /// Pod addresses without a Pod, to be rewritten: below `ROUTE`, above `SERVICE`.
    pub(crate) const DROP_UNASSIGNED_ROUTED: u16 = 195;
    /// Endpoints outside of the Pod network, through the host.
    pub(crate) const SERVICE: u16 = 190;
    /// All other packets in policy-only mode, through the host.
    pub(crate) const POLICY_ONLY_DEFAULT: u16 = 190;
    /// Packets to a local Pod whose MAC addresses need no rewriting, whichever MAC they have.
    pub(crate) const LOCAL_POD: u16 = 180;
    /// The gateway's address is in the Pod subnet: above `DROP_UNASSIGNED`.
    pub(crate) const LOCAL_GATEWAY: u16 = 178;
    /// Pod addresses without a Pod: below `LOCAL_POD`.
    pub(crate) const DROP_UNASSIGNED: u16 = 175;
    /// Packets of Pods to all other destinations, through the host.
    pub(crate) const POD_DEFAULT: u16 = 170;
}

pub(crate) mod l3_dec_ttl {
    /// The host has decremented the TTL already: above `DECREMENT`.
    pub(crate) const SKIP: u16 = 210;
    pub(crate) const DECREMENT: u16 = 200;
}

pub(crate) mod conntrack_commit {
    /// Packets that the host sent back for policies are committed already: above every flow that commits.
    pub(crate) const SKIP_RE_ENTRANT: u16 = 210;
    /// Connections from the gateway to Services need SNAT: above `SERVICE`.
    pub(crate) const SNAT_SERVICE: u16 = 210;
    /// Connections to Services keep their mark: above `FROM_GATEWAY`, which overwrites it.
    pub(crate) const SERVICE: u16 = 205;
    pub(crate) const FROM_GATEWAY: u16 = 200;
    /// All other new connections.
    pub(crate) const NEW: u16 = 190;
}

pub(crate) mod service_conntrack_commit {
    /// To an endpoint behind the gateway, with the virtual Service address as source.
    pub(crate) const TO_GATEWAY: u16 = 210;
    /// To an endpoint on another Node: above `NEW_SNAT` and `NEW`, as these need SNAT with and without the mark.
    pub(crate) const TO_TUNNEL: u16 = 205;
    pub(crate) const NEW_SNAT: u16 = 200;
    /// Packets of known connections are translated as the first one was.
    pub(crate) const KNOWN: u16 = 200;
    /// New connections without SNAT.
    pub(crate) const NEW: u16 = 190;
}

pub(crate) mod l2_forwarding_out {
    /// Out by the input port, which an ordinary output does not do: above `OUTPUT`.
    pub(crate) const HAIRPIN: u16 = 210;
    pub(crate) const OUTPUT: u16 = 200;
}

/// On the transport bridge.
pub(crate) mod transport {
    /// Packets of the switch itself: above those from the wire, which have the same input port.
    pub(crate) const FROM_SWITCH: u16 = 100;
    /// Packets for the switch.
    pub(crate) const TO_SWITCH: u16 = 90;
}
