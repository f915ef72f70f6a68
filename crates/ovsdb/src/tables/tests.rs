use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::*;
use crate::monitor::MonitorReply;
use crate::replica::Replica;
use crate::transaction::Transaction;
use crate::value::{Datum, encode_row};

fn id(n: u128) -> String {
    Uuid::from_bits(n).to_string()
}

fn replica() -> Replica {
    let mut replica = Replica::new(all());
    let reply = json!([false, id(0), {
        "Open_vSwitch": {id(1): {"initial": {"bridges": ["uuid", id(2)], "ovs_version": "3.1.0", "next_cfg": 4}}},
        "Bridge": {id(2): {"initial": {"name": "br-int", "ports": ["set", [["uuid", id(3)], ["uuid", id(5)]]],
            "fail_mode": "secure", "protocols": "OpenFlow15"}}},
        "Port": {id(3): {"initial": {"name": "p0", "interfaces": ["uuid", id(4)], "tag": 7}},
            id(5): {"initial": {"name": "p1", "interfaces": ["uuid", id(6)]}}},
        "Interface": {id(4): {"initial": {"name": "p0", "type": "internal", "ofport": -1, "error": "no such device"}},
            id(6): {"initial": {"name": "p1", "ofport": 65534, "mac_in_use": "0a:00:00:00:00:01"}}},
    }]);
    replica.apply_reply(MonitorReply::decode(&reply).unwrap()).unwrap();
    replica
}

#[test]
fn rows_are_read_with_their_types() {
    let replica = replica();
    let root = replica.open_vswitch().unwrap().unwrap();
    assert_eq!((root.ovs_version.as_deref(), root.next_cfg, root.cur_cfg), (Some("3.1.0"), 4, 0));
    let bridge: Bridge = replica.named("br-int").unwrap().unwrap();
    assert_eq!(bridge.fail_mode, Some(FailMode::Secure));
    assert_eq!(bridge.protocols, BTreeSet::from(["OpenFlow15".to_owned()]));
    assert_eq!(root.bridges, BTreeSet::from([bridge.uuid]));
    let ports = replica.ports_of(&bridge).unwrap();
    let brief: Vec<_> = ports.iter().map(|port| (port.name.as_str(), port.tag)).collect();
    assert_eq!(brief, [("p0", Some(7)), ("p1", None)]);
    let failed = &replica.interfaces_of(&ports[0]).unwrap()[0];
    assert_eq!((failed.ofport, failed.error.as_deref()), (OfPort::Failed, Some("no such device")));
    let local: Interface = replica.named("p1").unwrap().unwrap();
    assert_eq!((local.ofport.number(), local.mac_in_use.as_deref()), (Some(65534), Some("0a:00:00:00:00:01")));
    assert_eq!(replica.named::<Port>("br-int").unwrap(), None);
    assert_eq!(replica.all::<Interface>().count(), 2);
}

#[test]
fn a_bad_row_is_named() {
    let mut replica = Replica::new(all());
    let reply = json!([false, id(0), {"Interface": {id(1): {"initial": {"name": "x", "ofport": 70000}}}}]);
    replica.apply_reply(MonitorReply::decode(&reply).unwrap()).unwrap();
    let error = replica.named::<Interface>("x").unwrap_err().to_string();
    let expected =
        format!("Interface row {}, column ofport: expected an OpenFlow port number, found 70000", Uuid::from_bits(1));
    assert_eq!(error, expected);
    let error = Port::from_row(Uuid::NIL, &Row::new()).unwrap_err();
    assert_eq!((error.table, error.column), ("Port", "name"));
}

#[test]
fn only_columns_that_are_set_are_written() {
    let mut transaction = Transaction::new();
    let interface =
        transaction.insert(InterfaceColumns::default().name("p0").kind("internal").ofport_request(Some(5u16)));
    let port = PortColumns::default().name("p0").interfaces([&interface]).tag(None::<u16>);
    assert_eq!(
        encode_row(&port.into_row()),
        json!({"name": "p0", "interfaces": ["named-uuid", "row0"], "tag": ["set", []]})
    );
    let bridge = BridgeColumns::default().fail_mode(Some(FailMode::Secure)).ports([Uuid::NIL]);
    let bridge = bridge.external_ids([("owner", "antrea")]);
    assert_eq!(
        encode_row(&bridge.into_row()),
        json!({"fail_mode": "secure", "ports": ["uuid", Uuid::NIL.to_string()],
            "external_ids": ["map", [["owner", "antrea"]]]})
    );
    assert_eq!(BridgeColumns::default().into_row(), Row::new());
    let empty = OpenVSwitchColumns::default().external_ids(BTreeMap::<String, String>::new()).into_row();
    assert_eq!(empty["external_ids"], Datum::Map(BTreeMap::new()));
}

#[test]
fn a_change_is_read_as_the_rows_of_its_table() {
    let change = &replica().as_changes()[0];
    assert_eq!(change.read_before::<Bridge>().unwrap(), None);
    assert_eq!(change.read_after::<Bridge>().unwrap().unwrap().name, "br-int");
    assert_eq!(change.read_after::<Port>().unwrap(), None);
}
