//! TCP: the windows that both sides have announced, and the states of a connection.
//!
//! The rules are those of Guido van Rooij's "Real stateful TCP packet filtering in IP Filter", with the allowances that
//! Open vSwitch makes for connections picked up in the middle.

use super::Update;
use crate::packet::Packet;

const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const PSH: u16 = 8;
const ACK: u16 = 16;
const URG: u16 = 32;

/// How far an acknowledgement may be off: a window without scaling, and a segment.
const SLACK: u32 = 0xffff + 1500;
const MAX_SCALE: u8 = 14;

const OPENING_TIMEOUT: u64 = 30;
const ESTABLISHED_TIMEOUT: u64 = 24 * 60 * 60;
const CLOSING_TIMEOUT: u64 = 15 * 60;
const BOTH_CLOSING_TIMEOUT: u64 = 45;
const CLOSED_TIMEOUT: u64 = 30;

/// State of one side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Stage {
    #[default]
    Silent,
    Sent,
    Established,
    Closing,
    Finished,
    Reset,
}

/// By how many bits a side shifts the windows it announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scale {
    /// It did not offer window scaling.
    Unscaled,
    Known(u8),
    /// Its SYN was not seen.
    Unseen,
}

#[derive(Clone, Debug)]
struct Side {
    stage: Stage,
    scale: Scale,
    /// The highest sequence number it has sent.
    sent: u32,
    /// The highest sequence number it may send.
    limit: u32,
    /// The largest window it has announced.
    window: u16,
}

/// A TCP connection: the side that opened it, and the other.
#[derive(Clone, Debug)]
pub(super) struct Tcp {
    sides: [Side; 2],
}

/// The relevant parts of a segment.
struct Seen {
    flags: u16,
    seq: u32,
    ack: u32,
    window: u16,
    payload: u32,
    scale: Option<u8>,
}

impl Seen {
    fn in_packet(packet: &Packet) -> Option<Seen> {
        let segment = packet.segment()?;
        let header = segment.first_chunk::<20>()?;
        let [_, _, _, _, s0, s1, s2, s3, a0, a1, a2, a3, f0, f1, w0, w1, ..] = *header;
        let length = usize::from(f0 >> 4) * 4;
        Some(Seen {
            flags: u16::from_be_bytes([f0, f1]) & 0xfff,
            seq: u32::from_be_bytes([s0, s1, s2, s3]),
            ack: u32::from_be_bytes([a0, a1, a2, a3]),
            window: u16::from_be_bytes([w0, w1]),
            payload: u32::try_from(segment.len().saturating_sub(length)).unwrap_or_default(),
            scale: window_scale(segment.get(20..length).unwrap_or_default()),
        })
    }

    fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Invalid combinations of flags.
    fn is_nonsense(&self) -> bool {
        let both_ends = self.has(SYN) && self.has(RST | FIN);
        let nothing = !self.has(SYN | ACK | RST);
        let without_ack = !self.has(ACK) && self.has(FIN | PSH | URG);
        both_ends || nothing || without_ack
    }

    /// The sequence number after it: SYN and FIN count.
    fn end(&self) -> u32 {
        let extra = u32::from(self.has(SYN)) + u32::from(self.has(FIN));
        self.seq.wrapping_add(self.payload).wrapping_add(extra)
    }
}

/// The window scale among the options.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    let mut scale = None;
    while options.len() >= 3 {
        match options {
            [0, ..] => return scale,
            [1, rest @ ..] => options = rest,
            [kind, length, value, ..] => {
                if *kind == 3 {
                    scale = Some((*value).min(MAX_SCALE));
                }
                options = options.get(usize::from(*length).max(2)..).unwrap_or_default();
            }
            _ => return scale,
        }
    }
    scale
}

/// Whether `a` is not before `b`, modulo 2^32.
fn reached(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() >= 0
}

fn unscaled(window: u16, scale: u8) -> u16 {
    u16::try_from(u32::from(window).div_ceil(1 << scale)).unwrap_or(u16::MAX)
}

impl Tcp {
    /// The connection that a segment opens; `None` if it may not open one.
    pub(super) fn opened_by(packet: &Packet) -> Option<Tcp> {
        let seen = Seen::in_packet(packet)?;
        if seen.is_nonsense() || (seen.has(SYN) && seen.has(ACK)) {
            return None;
        }
        let (scale, other) = match (seen.has(SYN), seen.scale) {
            (true, Some(scale)) => (Scale::Known(scale), Scale::Unscaled),
            (true, None) => (Scale::Unscaled, Scale::Unscaled),
            (false, _) => (Scale::Unseen, Scale::Unseen),
        };
        let window = seen.window.max(1);
        let window = if let Scale::Known(scale) = scale { unscaled(window, scale) } else { window };
        let opener = Side { stage: Stage::Sent, scale, sent: seen.seq, limit: seen.end().wrapping_add(1), window };
        let other = Side { stage: Stage::Silent, scale: other, sent: 0, limit: 1, window: 1 };
        Some(Tcp { sides: [opener, other] })
    }

    /// Updates the connection by a segment; returns the new timeout in seconds.
    pub(super) fn update(&mut self, packet: &Packet, reply: bool) -> (Update, Option<u64>) {
        let Some(mut seen) = Seen::in_packet(packet) else { return (Update::Invalid, None) };
        let [opener, other] = &mut self.sides;
        let (src, dst) = if reply { (other, opener) } else { (opener, other) };
        if seen.is_nonsense() {
            return (Update::Invalid, None);
        }
        if seen.has(SYN) && !seen.has(ACK) {
            if src.stage >= Stage::Finished && dst.stage >= Stage::Finished {
                (src.stage, dst.stage) = (Stage::Silent, Stage::Silent);
                return (Update::Reopen, None);
            }
            if src.stage <= Stage::Sent {
                src.stage = Stage::Sent;
                return (Update::ValidNew, Some(OPENING_TIMEOUT));
            }
        }
        let (mut src_scale, mut dst_scale) = match (src.scale, dst.scale) {
            (Scale::Known(src), Scale::Known(dst)) if !seen.has(SYN) => (src, dst),
            (Scale::Unseen, Scale::Unseen) if !seen.has(SYN) => (MAX_SCALE, MAX_SCALE),
            _ => (0, 0),
        };
        let first = src.stage < Stage::Sent;
        let mut check_ack = true;
        if first {
            if seen.has(SYN)
                && let Scale::Known(scale) = dst.scale
            {
                match seen.scale {
                    Some(own) => {
                        src.scale = Scale::Known(own);
                        (src_scale, dst_scale) = (own, scale);
                        seen.window = unscaled(seen.window, own);
                    }
                    // Scaling applies only if both sides offer it.
                    None => {
                        (src.scale, dst.scale) = (Scale::Unscaled, Scale::Unscaled);
                        dst.window = dst.window.wrapping_shl(u32::from(scale));
                    }
                }
            }
            src.sent = seen.seq;
            src.stage = Stage::Sent;
            let room = (u32::from(dst.window) << dst_scale).max(1);
            let limit = seen.end().wrapping_add(room);
            if src.limit == 1 || reached(limit, src.limit) {
                src.limit = limit;
                // The other side's numbers are not known well enough yet.
                check_ack = false;
            }
            src.window = src.window.max(seen.window);
        }
        let ack = match seen.has(ACK) {
            true if seen.ack == 0 && seen.has(RST) => dst.sent,
            true => seen.ack,
            false => dst.sent,
        };
        let (seq, end) = if seen.seq == seen.end() { (src.sent, src.sent) } else { (seen.seq, seen.end()) };
        let skew = if check_ack { i64::from(dst.sent.wrapping_sub(ack).cast_signed()) } else { 0 };
        let room = u32::from(dst.window) << dst_scale;
        let fits = reached(src.limit, end)
            && reached(seq, src.sent.wrapping_sub(room))
            && skew >= -i64::from(SLACK)
            && skew <= i64::from(SLACK) << src_scale
            && (!seen.has(RST)
                || seen.seq == src.sent
                || seen.seq == src.sent.wrapping_add(1)
                || seen.seq.wrapping_add(1) == src.sent);
        let unsettled = dst.stage < Stage::Sent || dst.stage >= Stage::Finished || src.stage >= Stage::Finished;
        let near = reached(src.limit.wrapping_add(SLACK), end) && reached(seq, src.sent.wrapping_sub(SLACK));
        if !(fits || unsettled && near) {
            return (Update::Invalid, None);
        }
        src.window = src.window.max(seen.window);
        if reached(end, src.sent) {
            src.sent = end;
        }
        let announced = u32::from(seen.window) << src_scale;
        if reached(ack.wrapping_add(announced), dst.limit) {
            dst.limit = ack.wrapping_add(announced.max(1));
        }
        if seen.has(FIN) {
            src.stage = src.stage.max(Stage::Closing);
        }
        if fits && seen.has(ACK) {
            match dst.stage {
                Stage::Sent => dst.stage = Stage::Established,
                Stage::Closing => dst.stage = Stage::Finished,
                _ => {}
            }
        }
        if seen.has(RST) {
            (src.stage, dst.stage) = (Stage::Reset, Stage::Reset);
        }
        // A segment that passed by exception does not refresh the timeout.
        (Update::Valid, fits.then(|| timeout(src.stage.min(dst.stage), src.stage.max(dst.stage))))
    }
}

fn timeout(least: Stage, most: Stage) -> u64 {
    if least >= Stage::Finished {
        CLOSED_TIMEOUT
    } else if least >= Stage::Closing {
        BOTH_CLOSING_TIMEOUT
    } else if least < Stage::Established {
        OPENING_TIMEOUT
    } else if most >= Stage::Closing {
        CLOSING_TIMEOUT
    } else {
        ESTABLISHED_TIMEOUT
    }
}
