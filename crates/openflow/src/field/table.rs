//! The table of match fields: names, numbers, widths, masks and prerequisites.
//!
//! The order is the order on the wire: prerequisites of other fields (`eth_type`, `nw_proto`, `ct_state`) come first, the
//! rest follows the order in which ovs-ofctl prints.

use super::{Format, Header, Requires, Spec};

/// OpenFlow's own class of fields.
const OF: u16 = 0x8000;
/// OpenFlow's packet registers (`xreg`).
const REG: u16 = 0x8001;
/// Nicira's first class, which mirrors OpenFlow 1.0.
const NXM0: u16 = 0x0000;
/// Nicira's second OXM class.
const NXM1: u16 = 0x0001;
/// Ericsson's class, with the extras of neighbour discovery.
const ERIC: u16 = 0x1000;

const fn at(class: u16, number: u8) -> Header {
    Header { class, number }
}

macro_rules! fields {
    ($(
        $(#[doc = $doc:literal])?
        $variant:ident $name:literal $aliases:tt $nxm_name:literal
        $header:expr, $nxm:expr, $bits:literal in $bytes:literal, $mask:ident, $format:ident, $requires:ident;
    )*) => {
        /// A field of a packet or of its metadata that can be matched, read or written.
        ///
        /// The order is that of the wire, see [`Spec`] for what is known of each.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Field {
            /// Every field, in wire order.
            pub const ALL: &[Field] = &[$(Field::$variant,)*];

            pub(super) const SPECS: &[Spec] = &[$(Spec {
                name: $name,
                aliases: &$aliases,
                nxm_name: $nxm_name,
                header: $header,
                nxm: $nxm,
                bits: $bits,
                bytes: $bytes,
                maskable: fields!(@mask $mask),
                format: Format::$format,
                requires: Requires::$requires,
            },)*];
        }
    };
    (@mask masked) => { true };
    (@mask exact) => { false };
}

fields! {
    // variant    name  aliases  name in subfields  header  header in NXM  bits in bytes, mask, format, requires
    EthType "eth_type" ["dl_type"] "NXM_OF_ETH_TYPE" at(OF, 5), Some(at(NXM0, 3)), 16 in 2, exact, Hex, Nothing;
    IpProto "nw_proto" ["ip_proto"] "NXM_OF_IP_PROTO" at(OF, 10), Some(at(NXM0, 6)), 8 in 1, exact, Decimal, Ip;
    PktMark "pkt_mark" [] "NXM_NX_PKT_MARK" at(NXM1, 33), None, 32 in 4, masked, Hex, Nothing;
    RecircId "recirc_id" [] "NXM_NX_RECIRC_ID" at(NXM1, 36), None, 32 in 4, exact, Hex, Nothing;
    DpHash "dp_hash" [] "NXM_NX_DP_HASH" at(NXM1, 35), None, 32 in 4, masked, Hex, Nothing;
    ConjId "conj_id" [] "NXM_NX_CONJ_ID" at(NXM1, 37), None, 32 in 4, exact, Decimal, Nothing;
    ActsetOutput "actset_output" [] "OXM_OF_ACTSET_OUTPUT" at(OF, 43), None, 32 in 4, exact, Port, Nothing;
    CtState "ct_state" [] "NXM_NX_CT_STATE" at(NXM1, 105), None, 8 in 4, masked, CtState, Nothing;
    CtZone "ct_zone" [] "NXM_NX_CT_ZONE" at(NXM1, 106), None, 16 in 2, exact, Hex, Nothing;
    CtMark "ct_mark" [] "NXM_NX_CT_MARK" at(NXM1, 107), None, 32 in 4, masked, Hex, Nothing;
    CtLabel "ct_label" [] "NXM_NX_CT_LABEL" at(NXM1, 108), None, 128 in 16, masked, Hex, Nothing;
    CtNwSrc "ct_nw_src" [] "NXM_NX_CT_NW_SRC" at(NXM1, 120), None, 32 in 4, masked, Ipv4, CtIpv4;
    CtIpv6Src "ct_ipv6_src" [] "NXM_NX_CT_IPV6_SRC" at(NXM1, 122), None, 128 in 16, masked, Ipv6, CtIpv6;
    CtNwDst "ct_nw_dst" [] "NXM_NX_CT_NW_DST" at(NXM1, 121), None, 32 in 4, masked, Ipv4, CtIpv4;
    CtIpv6Dst "ct_ipv6_dst" [] "NXM_NX_CT_IPV6_DST" at(NXM1, 123), None, 128 in 16, masked, Ipv6, CtIpv6;
    CtNwProto "ct_nw_proto" [] "NXM_NX_CT_NW_PROTO" at(NXM1, 119), None, 8 in 1, exact, Decimal, CtIp;
    CtTpSrc "ct_tp_src" [] "NXM_NX_CT_TP_SRC" at(NXM1, 124), None, 16 in 2, masked, Decimal, CtPorts;
    CtTpDst "ct_tp_dst" [] "NXM_NX_CT_TP_DST" at(NXM1, 125), None, 16 in 2, masked, Decimal, CtPorts;
    Reg0 "reg0" [] "NXM_NX_REG0" at(NXM1, 0), None, 32 in 4, masked, Hex, Nothing;
    Reg1 "reg1" [] "NXM_NX_REG1" at(NXM1, 1), None, 32 in 4, masked, Hex, Nothing;
    Reg2 "reg2" [] "NXM_NX_REG2" at(NXM1, 2), None, 32 in 4, masked, Hex, Nothing;
    Reg3 "reg3" [] "NXM_NX_REG3" at(NXM1, 3), None, 32 in 4, masked, Hex, Nothing;
    Reg4 "reg4" [] "NXM_NX_REG4" at(NXM1, 4), None, 32 in 4, masked, Hex, Nothing;
    Reg5 "reg5" [] "NXM_NX_REG5" at(NXM1, 5), None, 32 in 4, masked, Hex, Nothing;
    Reg6 "reg6" [] "NXM_NX_REG6" at(NXM1, 6), None, 32 in 4, masked, Hex, Nothing;
    Reg7 "reg7" [] "NXM_NX_REG7" at(NXM1, 7), None, 32 in 4, masked, Hex, Nothing;
    Reg8 "reg8" [] "NXM_NX_REG8" at(NXM1, 8), None, 32 in 4, masked, Hex, Nothing;
    Reg9 "reg9" [] "NXM_NX_REG9" at(NXM1, 9), None, 32 in 4, masked, Hex, Nothing;
    Reg10 "reg10" [] "NXM_NX_REG10" at(NXM1, 10), None, 32 in 4, masked, Hex, Nothing;
    Reg11 "reg11" [] "NXM_NX_REG11" at(NXM1, 11), None, 32 in 4, masked, Hex, Nothing;
    Reg12 "reg12" [] "NXM_NX_REG12" at(NXM1, 12), None, 32 in 4, masked, Hex, Nothing;
    Reg13 "reg13" [] "NXM_NX_REG13" at(NXM1, 13), None, 32 in 4, masked, Hex, Nothing;
    Reg14 "reg14" [] "NXM_NX_REG14" at(NXM1, 14), None, 32 in 4, masked, Hex, Nothing;
    Reg15 "reg15" [] "NXM_NX_REG15" at(NXM1, 15), None, 32 in 4, masked, Hex, Nothing;
    // Wide registers are the narrow ones seen through a wider window; a match never holds them (see `Match::set`).
    Xreg0 "xreg0" [] "OXM_OF_PKT_REG0" at(REG, 0), None, 64 in 8, masked, Hex, Nothing;
    Xreg1 "xreg1" [] "OXM_OF_PKT_REG1" at(REG, 1), None, 64 in 8, masked, Hex, Nothing;
    Xreg2 "xreg2" [] "OXM_OF_PKT_REG2" at(REG, 2), None, 64 in 8, masked, Hex, Nothing;
    Xreg3 "xreg3" [] "OXM_OF_PKT_REG3" at(REG, 3), None, 64 in 8, masked, Hex, Nothing;
    Xreg4 "xreg4" [] "OXM_OF_PKT_REG4" at(REG, 4), None, 64 in 8, masked, Hex, Nothing;
    Xreg5 "xreg5" [] "OXM_OF_PKT_REG5" at(REG, 5), None, 64 in 8, masked, Hex, Nothing;
    Xreg6 "xreg6" [] "OXM_OF_PKT_REG6" at(REG, 6), None, 64 in 8, masked, Hex, Nothing;
    Xreg7 "xreg7" [] "OXM_OF_PKT_REG7" at(REG, 7), None, 64 in 8, masked, Hex, Nothing;
    Xxreg0 "xxreg0" [] "NXM_NX_XXREG0" at(NXM1, 111), None, 128 in 16, masked, Hex, Nothing;
    Xxreg1 "xxreg1" [] "NXM_NX_XXREG1" at(NXM1, 112), None, 128 in 16, masked, Hex, Nothing;
    Xxreg2 "xxreg2" [] "NXM_NX_XXREG2" at(NXM1, 113), None, 128 in 16, masked, Hex, Nothing;
    Xxreg3 "xxreg3" [] "NXM_NX_XXREG3" at(NXM1, 114), None, 128 in 16, masked, Hex, Nothing;
    TunId "tun_id" ["tunnel_id"] "NXM_NX_TUN_ID" at(OF, 38), Some(at(NXM1, 16)), 64 in 8, masked, Hex, Nothing;
    TunSrc "tun_src" [] "NXM_NX_TUN_IPV4_SRC" at(NXM1, 31), None, 32 in 4, masked, Ipv4, Nothing;
    TunDst "tun_dst" [] "NXM_NX_TUN_IPV4_DST" at(NXM1, 32), None, 32 in 4, masked, Ipv4, Nothing;
    TunIpv6Src "tun_ipv6_src" [] "NXM_NX_TUN_IPV6_SRC" at(NXM1, 109), None, 128 in 16, masked, Ipv6, Nothing;
    TunIpv6Dst "tun_ipv6_dst" [] "NXM_NX_TUN_IPV6_DST" at(NXM1, 110), None, 128 in 16, masked, Ipv6, Nothing;
    TunFlags "tun_flags" [] "NXM_NX_TUN_FLAGS" at(NXM1, 104), None, 1 in 2, masked, TunFlags, Nothing;
    Metadata "metadata" [] "OXM_OF_METADATA" at(OF, 2), None, 64 in 8, masked, Hex, Nothing;
    // 32 bits wide in a match; where a subfield names it (move, learn, output) it is OpenFlow 1.0's with 16 bits.
    InPort "in_port" [] "NXM_OF_IN_PORT" at(OF, 0), None, 32 in 4, exact, Port, Nothing;
    VlanVid "vlan_vid" [] "OXM_OF_VLAN_VID" at(OF, 6), None, 13 in 2, masked, Decimal, Nothing;
    VlanPcp "vlan_pcp" ["dl_vlan_pcp"] "OXM_OF_VLAN_PCP" at(OF, 7), None, 3 in 1, exact, Decimal, Vlan;
    EthSrc "eth_src" ["dl_src"] "NXM_OF_ETH_SRC" at(OF, 4), Some(at(NXM0, 2)), 48 in 6, masked, Mac, Nothing;
    EthDst "eth_dst" ["dl_dst"] "NXM_OF_ETH_DST" at(OF, 3), Some(at(NXM0, 1)), 48 in 6, masked, Mac, Nothing;
    Ipv4Src "ip_src" ["nw_src"] "NXM_OF_IP_SRC" at(OF, 11), Some(at(NXM0, 7)), 32 in 4, masked, Ipv4, Ipv4;
    Ipv4Dst "ip_dst" ["nw_dst"] "NXM_OF_IP_DST" at(OF, 12), Some(at(NXM0, 8)), 32 in 4, masked, Ipv4, Ipv4;
    Ipv6Src "ipv6_src" [] "NXM_NX_IPV6_SRC" at(OF, 26), Some(at(NXM1, 19)), 128 in 16, masked, Ipv6, Ipv6;
    Ipv6Dst "ipv6_dst" [] "NXM_NX_IPV6_DST" at(OF, 27), Some(at(NXM1, 20)), 128 in 16, masked, Ipv6, Ipv6;
    Ipv6Label "ipv6_label" [] "NXM_NX_IPV6_LABEL" at(OF, 28), Some(at(NXM1, 27)), 20 in 4, masked, Hex, Ipv6;
    ArpSpa "arp_spa" [] "NXM_OF_ARP_SPA" at(OF, 22), Some(at(NXM0, 16)), 32 in 4, masked, Ipv4, Arp;
    ArpTpa "arp_tpa" [] "NXM_OF_ARP_TPA" at(OF, 23), Some(at(NXM0, 17)), 32 in 4, masked, Ipv4, Arp;
    ArpOp "arp_op" [] "NXM_OF_ARP_OP" at(OF, 21), Some(at(NXM0, 15)), 16 in 2, exact, Decimal, Arp;
    ArpSha "arp_sha" [] "NXM_NX_ARP_SHA" at(OF, 24), Some(at(NXM1, 17)), 48 in 6, masked, Mac, Arp;
    ArpTha "arp_tha" [] "NXM_NX_ARP_THA" at(OF, 25), Some(at(NXM1, 18)), 48 in 6, masked, Mac, Arp;
    IpDscp "ip_dscp" [] "OXM_OF_IP_DSCP" at(OF, 8), None, 6 in 1, exact, Decimal, Ip;
    IpEcn "nw_ecn" ["ip_ecn"] "NXM_NX_IP_ECN" at(OF, 9), Some(at(NXM1, 28)), 2 in 1, exact, Decimal, Ip;
    IpTtl "nw_ttl" ["ip_ttl"] "NXM_NX_IP_TTL" at(NXM1, 29), None, 8 in 1, exact, Decimal, Ip;
    IpFrag "ip_frag" ["nw_frag"] "NXM_NX_IP_FRAG" at(NXM1, 26), None, 2 in 1, masked, Frag, Ip;
    Icmpv4Type "icmp_type" [] "NXM_OF_ICMP_TYPE" at(OF, 19), Some(at(NXM0, 13)), 8 in 1, exact, Decimal, Icmpv4;
    Icmpv4Code "icmp_code" [] "NXM_OF_ICMP_CODE" at(OF, 20), Some(at(NXM0, 14)), 8 in 1, exact, Decimal, Icmpv4;
    Icmpv6Type "icmpv6_type" [] "NXM_NX_ICMPV6_TYPE" at(OF, 29), Some(at(NXM1, 21)), 8 in 1, exact, Decimal, Icmpv6;
    Icmpv6Code "icmpv6_code" [] "NXM_NX_ICMPV6_CODE" at(OF, 30), Some(at(NXM1, 22)), 8 in 1, exact, Decimal, Icmpv6;
    NdTarget "nd_target" [] "NXM_NX_ND_TARGET" at(OF, 31), Some(at(NXM1, 23)), 128 in 16, masked, Ipv6, Nd;
    NdSll "nd_sll" [] "NXM_NX_ND_SLL" at(OF, 32), Some(at(NXM1, 24)), 48 in 6, masked, Mac, NdSolicit;
    NdTll "nd_tll" [] "NXM_NX_ND_TLL" at(OF, 33), Some(at(NXM1, 25)), 48 in 6, masked, Mac, NdAdvert;
    NdReserved "nd_reserved" [] "ERICOXM_OF_ICMPV6_ND_RESERVED" at(ERIC, 1), None, 32 in 4, exact, Decimal, Nd;
    NdOptionsType "nd_options_type" [] "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE" at(ERIC, 2), None, 8 in 1, exact, Decimal, Nd;
    TcpSrc "tcp_src" [] "NXM_OF_TCP_SRC" at(OF, 13), Some(at(NXM0, 9)), 16 in 2, masked, Decimal, Tcp;
    TcpDst "tcp_dst" [] "NXM_OF_TCP_DST" at(OF, 14), Some(at(NXM0, 10)), 16 in 2, masked, Decimal, Tcp;
    UdpSrc "udp_src" [] "NXM_OF_UDP_SRC" at(OF, 15), Some(at(NXM0, 11)), 16 in 2, masked, Decimal, Udp;
    UdpDst "udp_dst" [] "NXM_OF_UDP_DST" at(OF, 16), Some(at(NXM0, 12)), 16 in 2, masked, Decimal, Udp;
    SctpSrc "sctp_src" [] "OXM_OF_SCTP_SRC" at(OF, 17), None, 16 in 2, masked, Decimal, Sctp;
    SctpDst "sctp_dst" [] "OXM_OF_SCTP_DST" at(OF, 18), None, 16 in 2, masked, Decimal, Sctp;
    TcpFlags "tcp_flags" [] "NXM_NX_TCP_FLAGS" at(OF, 42), Some(at(NXM1, 34)), 12 in 2, masked, TcpFlags, Tcp;
}
