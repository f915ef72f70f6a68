//! Netlink requests for policy routing rules.

use libc::{NLM_F_CREATE, NLM_F_EXCL, RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE};
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use types::host::{ROUTE_PROTOCOL, RoutingRule};

use super::{Netlink, Refusal, Request};

/// The rules with our protocol number.
pub(crate) fn list(netlink: &mut Netlink) -> Result<Vec<RoutingRule>, Refusal> {
    let mut all = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = RuleMessage::default();
        message.header.family = family;
        all.extend(netlink.dump(&Request::new(RTM_GETRULE, 0, &message), |message| read(message.body))?);
    }
    Ok(all)
}

fn read(body: &[u8]) -> Option<RoutingRule> {
    let message = RuleMessage::parse(body).ok()?;
    let ipv6 = message.header.family == AddressFamily::Inet6;
    let table = message.header.table.into();
    let mut rule = RoutingRule { priority: 0, ipv6, device: String::new(), mark: 0, mask: 0, table };
    let mut ours = false;
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::Protocol(protocol) => ours = u8::from(protocol) == ROUTE_PROTOCOL,
            RuleAttribute::Priority(priority) => rule.priority = priority,
            RuleAttribute::Iifname(device) => rule.device = device,
            RuleAttribute::FwMark(mark) => rule.mark = mark,
            RuleAttribute::FwMask(mask) => rule.mask = mask,
            RuleAttribute::Table(table) => rule.table = table,
            _ => {}
        }
    }
    ours.then_some(rule)
}

/// Request to add a rule.
pub(crate) fn add(rule: &RoutingRule) -> Request {
    Request::new(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, &message(rule))
}

/// Removes exactly this rule.
pub(crate) fn remove(rule: &RoutingRule) -> Request {
    Request::new(RTM_DELRULE, 0, &message(rule))
}

fn message(rule: &RoutingRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Iifname(rule.device.clone()),
        RuleAttribute::FwMark(rule.mark),
        RuleAttribute::FwMask(rule.mask),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(RouteProtocol::from(ROUTE_PROTOCOL)),
    ];
    message
}
