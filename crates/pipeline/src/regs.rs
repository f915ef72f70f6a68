//! Registers, connection marks and labels as types: a field that overlaps another or overflows does not compile.

use openflow::action::{Action, Subfield};
use openflow::field::Field;
use openflow::matching::Match;

/// Bits `lo..=hi` of a register, a connection's mark or its label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    subfield: Subfield,
}

/// A value held in some bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    bits: Bits,
    value: u128,
}

impl Bits {
    /// Bits `lo` to `hi` of a field, which must have them.
    #[expect(clippy::panic, reason = "evaluated by the compiler: a bad layout does not compile")]
    const fn new(field: Field, lo: u8, hi: u8) -> Self {
        match Subfield::new(field, lo, hi) {
            Some(subfield) => Self { subfield },
            None => panic!("the field has no such bits"),
        }
    }

    /// The value in these bits, which it must fit.
    pub const fn is(self, value: u128) -> Mark {
        assert!(value <= self.max(), "a value wider than its bits");
        Mark { bits: self, value }
    }

    /// A value that is only known at run time; excess bits are cut off.
    pub const fn holds(self, value: u128) -> Mark {
        Mark { bits: self, value: value & self.max() }
    }

    /// The field and bit range, for actions.
    pub const fn subfield(self) -> Subfield {
        self.subfield
    }

    const fn max(self) -> u128 {
        self.subfield.mask() >> self.subfield.offset()
    }

    const fn overlaps(self, other: Bits) -> bool {
        self.subfield.field() as u8 == other.subfield.field() as u8 && self.subfield.mask() & other.subfield.mask() != 0
    }
}

impl Mark {
    /// `load:value->field[lo..hi]`: writes the value to the bits.
    pub fn load(self) -> Action {
        Action::load(self.bits.subfield, self.value)
    }

    /// Whether a whole register, or a connection's mark, holds the value.
    pub const fn is_in(self, register: u128) -> bool {
        let subfield = self.bits.subfield;
        register & subfield.mask() == self.value << subfield.offset()
    }
}

/// Conditions on marks, for matches.
pub trait Marked {
    /// Adds the condition that the bits hold the value.
    #[must_use]
    fn mark(self, mark: Mark) -> Self;
}

impl Marked for Match {
    fn mark(mut self, mark: Mark) -> Self {
        let subfield = mark.bits.subfield;
        let field = subfield.field();
        let (value, mask) = self.get(field).unwrap_or_default();
        self.set(field, value | mark.value << subfield.offset(), mask | subfield.mask());
        self
    }
}

macro_rules! layout {
    ($($(#[doc = $doc:literal])+ $name:ident: $field:ident[$lo:literal..=$hi:literal] $(shares $other:ident)?;)*) => {
        $($(#[doc = $doc])+ pub const $name: Bits = Bits::new(Field::$field, $lo, $hi);)*

        /// Pairs that may overlap, as no packet uses both at once.
        const SHARED: &[(Bits, Bits)] = &[$($(($name, $other),)?)*];
        const ALL: &[Bits] = &[$($name,)*];
    };
}

layout! {
    /// Where the packet came in: one of the `FROM_` marks.
    SOURCE: Reg0[0..=3];
    /// Whether the output port is known and in [`OUT_PORT`].
    OUT_KNOWN: Reg0[16..=16];
    /// Whether the packet is output to its input port.
    HAIRPIN_BIT: Reg0[18..=18];
    /// Whether the MACs must be rewritten.
    REWRITE_BIT: Reg0[19..=19];
    /// Whether a rule has denied the packet.
    DENIED_BIT: Reg0[20..=20];
    /// Whether the packet has passed `TunnelGuard`.
    NO_TUNNEL_BIT: Reg0[23..=23];
    /// Whether the packet has passed `RelatedGuard`.
    RELATED_BIT: Reg0[24..=24];
    /// The output port of the packet.
    OUT_PORT: Reg1[0..=31];
    /// Holds an address while two are swapped.
    SWAP: Reg2[0..=31];
    /// IPv4 address of the selected endpoint.
    ENDPOINT_IP: Reg3[0..=31];
    /// The rule that has denied the packet.
    DENIED_BY: Reg3[0..=31] shares ENDPOINT_IP;
    /// Port of the selected endpoint.
    ENDPOINT_PORT: Reg4[0..=15];
    /// State of endpoint selection: one of the `ENDPOINT_` marks.
    ENDPOINT_STATE: Reg4[16..=18];
    /// Whether the destination is an address on which NodePorts listen.
    NODE_PORT_BIT: Reg4[19..=19];
    /// Whether the connection needs SNAT.
    SNAT_BIT: Reg4[20..=20];
    /// The egress rule that has allowed the packet.
    EGRESS_RULE: Reg5[0..=31];
    /// The ingress rule that has allowed the packet.
    INGRESS_RULE: Reg6[0..=31];
    /// IPv6 address of the selected endpoint.
    ENDPOINT_IP6: Xxreg3[0..=127];
    /// Kind of the connection: `CT_GATEWAY` or `CT_SERVICE`.
    CT_KIND: CtMark[0..=5];
    /// Whether the connection has SNAT.
    CT_SNAT_BIT: CtMark[6..=6];
    /// Whether the connection has DNAT to the port of a tunnel protocol.
    CT_TUNNEL_PORT_BIT: CtMark[7..=7];
    /// The ingress rule that has allowed a connection.
    CT_INGRESS_RULE: CtLabel[0..=31];
    /// The egress rule that has allowed a connection.
    CT_EGRESS_RULE: CtLabel[32..=63];
    /// Input port of the first packet of a connection.
    CT_IN_PORT: CtLabel[64..=79];
    /// Output port of the first packet of a connection.
    CT_OUT_PORT: CtLabel[80..=95];
    /// Whether all policies have accepted a connection; only then do its packets bypass them.
    CT_ACCEPTED_BIT: CtLabel[127..=127];
}

const _: () = {
    let mut a = 0;
    while a < ALL.len() {
        let mut b = a + 1;
        while b < ALL.len() {
            assert!(!ALL[a].overlaps(ALL[b]) || may_share(ALL[a], ALL[b]), "two fields overlap");
            b += 1;
        }
        a += 1;
    }
};

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn may_share(a: Bits, b: Bits) -> bool {
    let mut i = 0;
    while i < SHARED.len() {
        let (x, y) = SHARED[i];
        if (same(a, x) && same(b, y)) || (same(a, y) && same(b, x)) {
            return true;
        }
        i += 1;
    }
    false
}

const fn same(a: Bits, b: Bits) -> bool {
    a.subfield.field() as u8 == b.subfield.field() as u8 && a.subfield.mask() == b.subfield.mask()
}

/// From another Node, through a tunnel.
pub const FROM_TUNNEL: Mark = SOURCE.is(0);
/// From the host, through the gateway.
pub const FROM_GATEWAY: Mark = SOURCE.is(1);
/// From a Pod on this Node.
pub const FROM_POD: Mark = SOURCE.is(2);
/// From the uplink of a bridge that has one.
pub const FROM_UPLINK: Mark = SOURCE.is(4);
/// From the bridge's own interface.
pub const FROM_BRIDGE: Mark = SOURCE.is(5);
/// The output port is known.
pub const FOUND: Mark = OUT_KNOWN.is(1);
/// Output to the input port.
pub const HAIRPIN: Mark = HAIRPIN_BIT.is(1);
/// The MACs must be rewritten.
pub const REWRITE: Mark = REWRITE_BIT.is(1);
/// Denied by a rule.
pub const DENIED: Mark = DENIED_BIT.is(1);
/// The packet has not passed `TunnelGuard`.
pub const MAY_BE_TUNNEL: Mark = NO_TUNNEL_BIT.is(0);
/// The packet has passed `TunnelGuard`.
pub const NO_TUNNEL: Mark = NO_TUNNEL_BIT.is(1);
/// The packet has not passed `RelatedGuard`.
pub const MAY_BE_FORGED: Mark = RELATED_BIT.is(0);
/// The packet has passed `RelatedGuard`.
pub const RELATED: Mark = RELATED_BIT.is(1);
/// An endpoint must be selected.
pub const ENDPOINT_SELECT: Mark = ENDPOINT_STATE.is(1);
/// An endpoint has been selected.
pub const ENDPOINT_SELECTED: Mark = ENDPOINT_STATE.is(2);
/// An endpoint has been selected and must be learned (session affinity).
pub const ENDPOINT_LEARN: Mark = ENDPOINT_STATE.is(3);
/// The destination is an address on which NodePorts listen.
pub const NODE_PORT: Mark = NODE_PORT_BIT.is(1);
/// The connection needs SNAT.
pub const SNAT: Mark = SNAT_BIT.is(1);
/// A connection from the gateway.
pub const CT_GATEWAY: Mark = CT_KIND.is(0x20);
/// A connection to a Service.
pub const CT_SERVICE: Mark = CT_KIND.is(0x21);
/// A connection with SNAT.
pub const CT_SNAT: Mark = CT_SNAT_BIT.is(1);
/// A connection with DNAT to the port of a tunnel protocol.
pub const CT_TUNNEL_PORT: Mark = CT_TUNNEL_PORT_BIT.is(1);
/// A connection that all policies have accepted.
pub const CT_ACCEPTED: Mark = CT_ACCEPTED_BIT.is(1);
