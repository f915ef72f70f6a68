//! What must hold for any bytes that claim to be an OpenFlow message.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use openflow::action::Action;
use openflow::flow::{Flow, FlowFlags};
use openflow::group::{Group, GroupMod};
use openflow::message::Message;
use openflow::meter::{Meter, MeterFlags, MeterMod};
use openflow::multipart::ReplyBody;
use openflow::text::ParseError;

/// Whatever decodes can be printed, encodes to bytes that decode to the same, and is what its text says it is.
pub fn check(data: &[u8]) {
    let Ok((xid, message)) = Message::decode(data) else { return };
    let _ = message.line(xid);
    let mut bytes = Vec::new();
    // Some old actions are shorter than those we write in their place, so a message at the limit may not fit any more.
    if message.encode(xid, &mut bytes).is_err() {
        return;
    }
    assert_eq!(Message::decode(&bytes).as_ref(), Ok(&(xid, message.clone())), "changes when it is encoded");
    match message {
        Message::FlowMod(change) => check_flow(change.flow),
        Message::GroupMod(
            GroupMod::Add(group)
            | GroupMod::Modify(group)
            | GroupMod::AddOrModify(group)
            | GroupMod::InsertBuckets(group, _),
        ) => check_group(group),
        Message::MeterMod(MeterMod::Add(meter) | MeterMod::Modify(meter)) => check_meter(meter),
        Message::MultipartReply(reply) => match reply.body {
            ReplyBody::Flow(flows) => flows.into_iter().for_each(|stats| check_flow(stats.flow)),
            ReplyBody::GroupDesc(groups) => groups.into_iter().for_each(check_group),
            ReplyBody::MeterConfig(meters) => meters.into_iter().for_each(check_meter),
            _ => {}
        },
        _ => {}
    }
}

/// The text of a value that no switch accepts need not parse, as long as that is why. It must never say something else.
const REFUSED: &[&str] = &[
    // A field without what it requires; names that several fields share are not used for it.
    "to be matched beside it",
    "is neither a field nor a property of a flow",
    // Numbers that ports, groups, meters, conjunctions and zones do not have.
    "is neither a port number up to",
    "is not a port that packets can be sent to",
    "needs a number from 0 to 4294967040",
    "is neither a meter number from 1 to",
    "needs (id, clause/clauses) with 2 to 64 clauses",
    "a zone has 16 bits",
    // Translation to a range that is none.
    "needs a range of addresses of one kind that goes up",
    "needs a range of ports that goes up",
    "needs ports from 1 to 65535",
    // Meters without a unit, a band or a rate, and bands of other types, for which ovs-ofctl has no words.
    "needs one of kbps and pktps",
    "needs at least one band",
    "the band needs a rate above 0",
    "the band needs a burst_size above 0",
    "is not a band type",
    // A second selection method.
    "is not a property that is unknown",
];

fn says<T: FromStr<Err = ParseError> + Display + PartialEq + Debug>(value: &T) {
    let text = value.to_string();
    match text.parse::<T>() {
        Ok(parsed) => assert_eq!(&parsed, value, "{text}"),
        Err(error) => {
            assert!(REFUSED.iter().any(|reason| error.problem.contains(reason)), "{text}\ndoes not parse: {error}");
        }
    }
}

fn check_flow(mut flow: Flow) {
    // ovs-ofctl has no words for other flags.
    flow.flags &= FlowFlags::KEPT | FlowFlags::CHECK_OVERLAP | FlowFlags::RESET_COUNTS;
    drop_lengths(&mut flow.actions);
    says(&flow);
}

fn check_group(mut group: Group) {
    group.buckets.iter_mut().for_each(|bucket| drop_lengths(&mut bucket.actions));
    says(&group);
}

fn check_meter(mut meter: Meter) {
    // ovs-ofctl has no words for other flags.
    meter.flags &= MeterFlags::KBPS | MeterFlags::PKTPS | MeterFlags::BURST | MeterFlags::STATS;
    says(&meter);
}

/// As in ovs-ofctl, the text of an output to a field does not say how much of the packet the controller would get.
fn drop_lengths(actions: &mut [Action]) {
    for action in actions {
        match action {
            Action::OutputField { max_len, .. } => *max_len = u16::MAX,
            Action::Ct(ct) => drop_lengths(&mut ct.exec),
            _ => {}
        }
    }
}
