//! Properties of any bytes that are read as an OpenFlow message.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use openflow::action::Action;
use openflow::flow::{Flow, FlowFlags};
use openflow::group::{Group, GroupMod};
use openflow::message::Message;
use openflow::meter::{Meter, MeterFlags, MeterMod};
use openflow::multipart::ReplyBody;
use openflow::text::ParseError;

/// A decoded message can be printed, encodes to bytes that decode to the same message, and its text parses to it.
pub fn check(data: &[u8]) {
    let Ok((xid, message)) = Message::decode(data) else { return };
    let _ = message.line(xid);
    let mut bytes = Vec::new();
    // Some old actions are shorter than those written in their place, so a message at the limit may no longer fit.
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

/// The text of a value that no switch accepts need not parse, if the error has one of these reasons. It must never
/// parse to another value.
const REFUSED: &[&str] = &[
    // A field without its prerequisites; names that several fields share are not used for it.
    "to be matched beside it",
    "is neither a field nor a property of a flow",
    // Numbers outside the range of ports, groups, meters, conjunctions and zones.
    "is neither a port number up to",
    "is not a port that packets can be sent to",
    "needs a number from 0 to 4294967040",
    "is neither a meter number from 1 to",
    "needs (id, clause/clauses) with 2 to 64 clauses",
    "a zone has 16 bits",
    // NAT to an invalid range.
    "needs a range of addresses of one kind that goes up",
    "needs a range of ports that goes up",
    "needs ports from 1 to 65535",
    // Meters without a unit, a band or a rate, and bands of other types, which ovs-ofctl cannot express.
    "needs one of kbps and pktps",
    "needs at least one band",
    "the band needs a rate above 0",
    "the band needs a burst_size above 0",
    "is not a band type",
    // A second selection method.
    "is not a property that is unknown",
];

fn check_text<T: FromStr<Err = ParseError> + Display + PartialEq + Debug>(value: &T) {
    let text = value.to_string();
    match text.parse::<T>() {
        Ok(parsed) => assert_eq!(&parsed, value, "{text}"),
        Err(error) => {
            assert!(REFUSED.iter().any(|reason| error.problem.contains(reason)), "{text}\ndoes not parse: {error}");
        }
    }
}

fn check_flow(mut flow: Flow) {
    // ovs-ofctl cannot express other flags.
    flow.flags &= FlowFlags::KEPT | FlowFlags::CHECK_OVERLAP | FlowFlags::RESET_COUNTS;
    drop_lengths(&mut flow.actions);
    check_text(&flow);
}

fn check_group(mut group: Group) {
    group.buckets.iter_mut().for_each(|bucket| drop_lengths(&mut bucket.actions));
    check_text(&group);
}

fn check_meter(mut meter: Meter) {
    // ovs-ofctl cannot express other flags.
    meter.flags &= MeterFlags::KBPS | MeterFlags::PKTPS | MeterFlags::BURST | MeterFlags::STATS;
    check_text(&meter);
}

/// As in ovs-ofctl, the text of an output to a field has no length for the controller.
fn drop_lengths(actions: &mut [Action]) {
    for action in actions {
        match action {
            Action::OutputField { max_len, .. } => *max_len = u16::MAX,
            Action::Ct(ct) => drop_lengths(&mut ct.exec),
            _ => {}
        }
    }
}
