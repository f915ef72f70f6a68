//! Takes over the Pods of Antrea: it keeps their `external_ids` in the rows of ports, and this agent in those of interfaces.

use ovsdb::condition::Where;
use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, InterfaceColumns, OfPort, RowError};
use ovsdb::transaction::Transaction;

use super::pod_port::is_of_pod;

/// Ports of Pods that Antrea has created.
#[derive(Debug, Default)]
pub struct Adoption {
    /// The ports by name.
    pub ports: Vec<String>,
    /// Makes them ports of this agent. Antrea's rows stay as they are, so it could take over again.
    pub transaction: Transaction,
}

impl Adoption {
    /// The ports of a bridge to take over; none after that.
    pub fn find(replica: &Replica, bridge: &str) -> Result<Self, RowError> {
        let mut found = Self::default();
        let Some(bridge) = replica.named::<Bridge>(bridge)? else { return Ok(found) };
        for port in replica.ports_of(&bridge)? {
            for interface in replica.interfaces_of(&port)? {
                if !is_of_pod(&port.external_ids) || is_of_pod(&interface.external_ids) {
                    continue;
                }
                let mut columns = InterfaceColumns::default().external_ids(port.external_ids.clone());
                if let OfPort::Assigned(number) = interface.ofport {
                    // Antrea requests none, and a restart of ovs-vswitchd would assign others.
                    columns = columns.ofport_request(Some(number));
                }
                found.transaction.update(Where::named(&interface.name), columns);
                found.ports.push(interface.name);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::monitor::MonitorReply;
    use ovsdb::value::Uuid;
    use serde_json::{Value, json};

    use super::*;

    fn id(n: u128) -> String {
        Uuid::from_bits(n).to_string()
    }

    /// As Antrea writes it.
    fn ids() -> Value {
        json!([
            "map",
            [
                ["antrea-type", "container"],
                ["attached-mac", "0a:00:0a:0a:01:05"],
                ["container-id", "c1"],
                ["ip-address", "10.10.1.5"],
                ["pod-name", "web"],
                ["pod-namespace", "default"]
            ]
        ])
    }

    fn replica(port: &Value, interface: &Value) -> Replica {
        let mut replica = Replica::new(ovsdb::tables::all());
        let reply = json!([false, id(0), {
            "Bridge": {id(1): {"initial": {"name": "br-int", "ports": ["set", [["uuid", id(2)], ["uuid", id(4)]]]}}},
            "Port": {id(2): {"initial": {"name": "web", "interfaces": ["uuid", id(3)], "external_ids": port}},
                id(4): {"initial": {"name": "antrea-gw0", "interfaces": ["uuid", id(5)],
                    "external_ids": ["map", [["antrea-type", "gateway"]]]}}},
            "Interface": {id(3): {"initial": {"name": "web", "ofport": 7, "external_ids": interface}},
                id(5): {"initial": {"name": "antrea-gw0", "ofport": 2}}},
        }]);
        replica.apply_reply(MonitorReply::decode(&reply).unwrap()).unwrap();
        replica
    }

    #[test]
    fn the_port_of_a_pod_of_antrea_gets_its_ids_and_keeps_its_number() {
        let found = Adoption::find(&replica(&ids(), &json!(["map", []])), "br-int").unwrap();
        assert_eq!(found.ports, ["web"]);
        let written = serde_json::to_string(&found.transaction.encode("Open_vSwitch")).unwrap();
        assert!(written.contains(r#"["container-id","c1"]"#) && written.contains(r#""ofport_request":7"#), "{written}");
        assert!(!written.contains("gateway"), "{written}");
    }

    #[test]
    fn ports_of_this_agent_and_of_other_bridges_stay() {
        let none = |replica: &Replica, bridge| {
            let found = Adoption::find(replica, bridge).unwrap();
            assert_eq!((found.ports.len(), found.transaction.is_empty()), (0, true));
        };
        none(&replica(&ids(), &ids()), "br-int");
        none(&replica(&json!(["map", []]), &ids()), "br-int");
        none(&replica(&ids(), &json!(["map", []])), "br-other");
    }
}
