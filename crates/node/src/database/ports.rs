//! The ports of the bridge as OVSDB has them, and their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, Interface, RowError, TypedRow};
use ovsdb::value::{Row, Uuid};

use super::{InvalidPort, PortRow};
use crate::event::PortEvent;

/// The ports of a bridge. Each update decodes only rows that have changed: there is one whenever the switch or another program
/// changes any port.
#[derive(Debug, Default)]
pub struct Ports {
    interfaces: BTreeMap<Uuid, (Arc<Row>, Result<PortRow, InvalidPort>)>,
}

impl Ports {
    /// Reads the ports of a bridge. Returns what has changed, and Pod ports whose `external_ids` have become invalid. A row that
    /// cannot be decoded changes nothing.
    pub fn update(&mut self, replica: &Replica, bridge: &str) -> Result<(Vec<PortEvent>, Vec<InvalidPort>), RowError> {
        let ports = match replica.named::<Bridge>(bridge)? {
            Some(bridge) => replica.ports_of(&bridge)?,
            None => Vec::new(),
        };
        let current: BTreeSet<Uuid> = ports.into_iter().flat_map(|port| port.interfaces).collect();
        let mut changed = Vec::new();
        for (uuid, row) in current.iter().filter_map(|uuid| Some((*uuid, replica.row(Interface::TABLE, *uuid)?))) {
            if self.interfaces.get(&uuid).is_none_or(|(before, _)| !Arc::ptr_eq(before, row)) {
                changed.push((uuid, Arc::clone(row), PortRow::read(&Interface::from_row(uuid, row)?)));
            }
        }
        let removed = self.interfaces.extract_if(.., |uuid, _| !current.contains(uuid));
        let removed: Vec<String> = removed.filter_map(|(_, (_, read))| Some(read.ok()?.name)).collect();
        let (mut events, mut invalid) = (Vec::new(), Vec::new());
        for (uuid, row, read) in changed {
            match (&read, self.interfaces.insert(uuid, (row, read.clone()))) {
                (read, Some((_, before))) if before == *read => {}
                (Ok(row), _) => events.push(PortEvent::Set(Box::new(row.clone()))),
                (Err(problem), _) => invalid.push(problem.clone()),
            }
        }
        // A port that was removed and added again is not gone.
        let is_set =
            |name: &String| events.iter().any(|event| matches!(event, PortEvent::Set(row) if row.name == *name));
        let gone: Vec<_> = removed.into_iter().filter(|name| !is_set(name)).map(PortEvent::Gone).collect();
        Ok((gone.into_iter().chain(events).collect(), invalid))
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::monitor::{MonitorReply, Update};
    use serde_json::{Value, json};

    use super::*;
    use crate::database::Assigned;

    fn id(n: u128) -> String {
        Uuid::from_bits(n).to_string()
    }

    /// A bridge with port `web` of a Pod and port `eth0`.
    fn replica() -> Replica {
        let mut replica = Replica::new(ovsdb::tables::all());
        let ids = json!([
            "map",
            [
                ["container-id", "c1"],
                ["pod-name", "web"],
                ["pod-namespace", "default"],
                ["ip-address", "10.10.1.5"],
                ["attached-mac", "0a:00:0a:0a:01:05"]
            ]
        ]);
        let reply = json!([false, id(0), {
            "Bridge": {id(1): {"initial": {"name": "br-int", "ports": ["set", [["uuid", id(2)], ["uuid", id(4)]]]}}},
            "Port": {id(2): {"initial": {"name": "web", "interfaces": ["uuid", id(3)]}},
                id(4): {"initial": {"name": "eth0", "interfaces": ["uuid", id(5)]}}},
            "Interface": {id(3): {"initial": {"name": "web", "external_ids": ids}}, id(5): {"initial": {"name": "eth0"}}},
        }]);
        replica.apply_reply(MonitorReply::decode(&reply).unwrap()).unwrap();
        replica
    }

    fn apply(replica: &mut Replica, tables: Value) {
        let update = Update::decode(&["m".into(), id(0).into(), tables]).unwrap();
        replica.apply_update(update).unwrap();
    }

    /// Names of set and gone ports, with the OpenFlow port.
    fn update(ports: &mut Ports, replica: &Replica) -> Vec<String> {
        let (events, invalid) = ports.update(replica, "br-int").unwrap();
        let event = |event| match event {
            PortEvent::Set(row) => match row.assigned {
                Assigned::Port(port) => format!("{}={port}", row.name),
                _ => row.name,
            },
            PortEvent::Gone(name) => format!("-{name}"),
            PortEvent::Failed { .. } => unreachable!(),
        };
        let invalid = invalid.into_iter().map(|problem| format!("!{problem}"));
        events.into_iter().map(event).chain(invalid).collect()
    }

    #[test]
    fn each_change_of_a_port_is_reported_once() {
        let (mut ports, mut replica) = (Ports::default(), replica());
        assert_eq!(update(&mut ports, &replica), ["web", "eth0"]);
        assert_eq!(update(&mut ports, &replica), [""; 0]);
        apply(&mut replica, json!({"Interface": {id(3): {"modify": {"ofport": 7}}}}));
        assert_eq!(update(&mut ports, &replica), ["web=7"]);
        // A column that is not part of a port.
        apply(&mut replica, json!({"Interface": {id(3): {"modify": {"mtu_request": 1400}}}}));
        assert_eq!(update(&mut ports, &replica), [""; 0]);
        apply(
            &mut replica,
            json!({"Interface": {id(3): {"modify": {"external_ids": ["map", [["ip-address", "x"]]]}}}}),
        );
        assert_eq!(update(&mut ports, &replica), ["!interface web: external_ids:ip-address: `x` is not an address"]);
        apply(&mut replica, json!({"Bridge": {id(1): {"modify": {"ports": ["uuid", id(4)]}}}}));
        assert_eq!(update(&mut ports, &replica), ["-eth0"]);
    }

    #[test]
    fn a_port_that_is_removed_and_added_again_is_set_and_not_gone() {
        let (mut ports, mut replica) = (Ports::default(), replica());
        update(&mut ports, &replica);
        apply(
            &mut replica,
            json!({
                "Bridge": {id(1): {"modify": {"ports": ["set", [["uuid", id(4)], ["uuid", id(6)]]]}}},
                "Port": {id(6): {"insert": {"name": "eth0", "interfaces": ["uuid", id(7)]}}},
                "Interface": {id(7): {"insert": {"name": "eth0", "ofport": 9}}},
            }),
        );
        assert_eq!(update(&mut ports, &replica), ["eth0=9"]);
        assert_eq!(ports.update(&replica, "br-other").unwrap().0.len(), 2);
    }

    #[test]
    fn a_row_that_cannot_be_decoded_changes_nothing() {
        let (mut ports, mut replica) = (Ports::default(), replica());
        update(&mut ports, &replica);
        apply(
            &mut replica,
            json!({"Interface": {id(5): {"modify": {"ofport": 70000}}, id(3): {"modify": {"ofport": 7}}}}),
        );
        ports.update(&replica, "br-int").unwrap_err();
        apply(&mut replica, json!({"Interface": {id(5): {"modify": {"ofport": 8}}}}));
        assert_eq!(update(&mut ports, &replica), ["web=7", "eth0=8"]);
    }
}
