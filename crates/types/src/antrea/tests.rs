use super::*;
use crate::meta::{IntOrString, Protocol};

fn unknown(name: &str) -> UnknownFields {
    UnknownFields([name.to_owned()].into())
}

#[test]
fn a_policy_has_every_field_and_the_names_of_unknown_ones() {
    let text = r#"{
        "metadata": {"name": "p", "uid": "u", "generation": 3},
        "spec": {
            "tier": "securityops", "priority": 5, "mood": 1,
            "appliedTo": [{"podSelector": {}}, {"serviceAccount": {"name": "s", "namespace": "x"}}, {"group": "g"}],
            "ingress": [{
                "action": "Drop", "name": "r", "enableLogging": true, "logLabel": "l", "l7Protocols": [{"http": {}}],
                "from": [{"namespaces": {"match": "Self"}}, {"namespaces": {"sameLabels": ["team"]}}, {"scope": "ClusterSet"}],
                "ports": [{"protocol": "UDP", "port": "dns"}, {"sourcePort": 1, "sourceEndPort": 2}],
                "protocols": [{"icmp": {"icmpType": 8}}, {"igmp": {"igmpType": 17}}]
            }],
            "egress": [{
                "action": "Allow",
                "to": [{"fqdn": "*.x.y"}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, {"nodeSelector": {}}],
                "toServices": [{"name": "s", "namespace": "x"}],
                "appliedTo": [{"namespaceSelector": {}}]
            }]
        },
        "status": {"phase": "Realized"}
    }"#;
    let policy: Policy = serde_json::from_str(text).unwrap();
    let spec = &policy.spec;
    assert_eq!(
        (spec.tier.as_str(), spec.priority.unwrap().value(), &spec.unknown),
        ("securityops", 5.0, &unknown("mood"))
    );
    assert_eq!(spec.applied_to[1].service_account.as_ref().unwrap().namespace, "x");
    assert_eq!((spec.applied_to[2].group.as_str(), spec.applied_to[0].group.as_str()), ("g", ""));
    let (ingress, egress) = (&spec.ingress[0], &spec.egress[0]);
    assert_eq!(
        (ingress.action.as_str(), ingress.name.as_str(), &ingress.unknown),
        ("Drop", "r", &unknown("l7Protocols"))
    );
    assert!(ingress.enable_logging && ingress.log_label == "l");
    let namespaces = |n: usize| ingress.from[n].namespaces.as_ref().unwrap();
    assert_eq!((namespaces(0).matching.as_str(), &namespaces(1).same_labels[..]), ("Self", &["team".to_owned()][..]));
    assert_eq!(ingress.from[2].scope, "ClusterSet");
    assert_eq!(ingress.ports[0].port, Some(IntOrString::String("dns".to_owned())));
    assert_eq!(
        (&ingress.ports[0].protocol, &ingress.ports[1].protocol),
        (&Protocol::Udp.into(), &Protocol::Tcp.into())
    );
    assert_eq!((ingress.ports[1].source_port, ingress.ports[1].source_end_port), (Some(1), Some(2)));
    assert_eq!(ingress.protocols[0].icmp.as_ref().unwrap().icmp_type, Some(8));
    assert_eq!((&ingress.protocols[1].icmp, &ingress.protocols[1].unknown), (&None, &unknown("igmp")));
    assert_eq!((egress.to[0].fqdn.as_str(), egress.to_services[0].name.as_str()), ("*.x.y", "s"));
    assert_eq!(egress.to[1].ip_block.as_ref().unwrap().except, ["10.1.0.0/16"]);
    assert!(egress.to[2].node_selector.is_some() && egress.applied_to[0].namespace_selector.is_some());
    // It is written as it was read, but for the values of unknown fields.
    let written = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), policy);
}

#[test]
fn a_priority_may_have_a_fraction() {
    for (text, value) in [("1", 1.0), ("5.3", 5.3), ("10000.0", 10000.0)] {
        let spec: PolicySpec = serde_json::from_str(&format!(r#"{{"priority": {text}}}"#)).unwrap();
        assert_eq!(spec.priority, Some(Decimal::from(value)));
    }
    assert_eq!(serde_json::from_str::<PolicySpec>("{}").unwrap().priority, None);
}

#[test]
fn tiers_groups_and_external_entities_are_read_and_written() {
    let text = r#"{"metadata": {"name": "t"}, "spec": {"priority": 50, "description": "d", "mood": 1}}"#;
    let tier: Tier = serde_json::from_str(text).unwrap();
    assert_eq!((tier.spec.priority, &tier.spec.unknown), (Some(50), &unknown("mood")));
    let text = r#"{"metadata": {"name": "g"}, "spec": {
        "ipBlocks": [{"cidr": "10.0.0.0/8"}], "childGroups": ["h"], "serviceReference": {"name": "s", "namespace": "x"}
    }}"#;
    let group: Group = serde_json::from_str(text).unwrap();
    assert_eq!((group.spec.ip_blocks.len(), &group.spec.child_groups[..]), (1, &["h".to_owned()][..]));
    assert_eq!(serde_json::from_str::<Group>(&serde_json::to_string(&group).unwrap()).unwrap(), group);
    let text = r#"{"metadata": {"name": "e", "namespace": "x", "labels": {"a": "b"}}, "spec": {
        "endpoints": [{"ip": "192.0.2.1"}], "ports": [{"protocol": "TCP", "port": 80, "name": "web"}], "externalNode": "n"
    }}"#;
    let entity: ExternalEntity = serde_json::from_str(text).unwrap();
    assert_eq!((entity.spec.endpoints[0].ip.as_str(), entity.spec.ports[0].port), ("192.0.2.1", 80));
    assert_eq!(serde_json::from_str::<ExternalEntity>(&serde_json::to_string(&entity).unwrap()).unwrap(), entity);
}
