use super::*;

const ALLOW: &str = r#"{"action": "Allow", "from": [{"podSelector": {}}]}"#;

fn read(namespace: &str, spec: &str) -> AntreaReading {
    let name = ObjectName { namespace: namespace.to_owned(), name: "p".to_owned() };
    let policy: Policy = serde_json::from_str(&format!(r#"{{"spec": {spec}}}"#)).unwrap();
    AntreaReading::new(&name, &policy)
}

/// A ClusterNetworkPolicy for all Pods with one ingress rule.
fn ingress(rule: &str) -> AntreaReading {
    read("", &format!(r#"{{"priority": 1, "appliedTo": [{{"podSelector": {{}}}}], "ingress": [{rule}]}}"#))
}

fn egress(rule: &str) -> AntreaReading {
    read("", &format!(r#"{{"priority": 1, "appliedTo": [{{"podSelector": {{}}}}], "egress": [{rule}]}}"#))
}

fn fields(reading: &AntreaReading) -> Vec<&str> {
    reading.problems.iter().map(|problem| problem.field.as_str()).collect()
}

/// Whether rules are left, and match any peer and any port.
fn matches(reading: &AntreaReading) -> bool {
    reading.rules.iter().any(|rule| {
        let peers = rule.peers.as_ref();
        let some_peer = peers.is_none_or(|p| {
            !p.targets.is_empty() || !p.blocks.is_empty() || !p.relative.is_empty() || !p.entities.is_empty()
        });
        some_peer && rule.services.as_ref().is_none_or(|services| !services.is_empty())
    })
}

#[test]
fn system_tiers_may_have_a_capital_letter_and_the_default_is_application() {
    for (written, tier) in [
        ("", "application"),
        ("Emergency", "emergency"),
        ("emergency", "emergency"),
        ("EMERGENCY", "EMERGENCY"),
        ("Mine", "Mine"),
    ] {
        assert_eq!(read("", &format!(r#"{{"tier": "{written}", "priority": 1}}"#)).tier, tier);
    }
}

#[test]
fn a_policy_needs_a_priority_from_1_to_10000() {
    for (text, is_valid) in [("1", true), ("5.5", true), ("10000", true), ("0.9", false), ("10001", false)] {
        let reading = read("", &format!(r#"{{"priority": {text}}}"#));
        assert_eq!((reading.priority.is_some(), reading.problems.is_empty()), (is_valid, is_valid), "{text}");
    }
    assert_eq!(fields(&read("", "{}")), ["spec.priority"]);
}

#[test]
fn a_pod_selector_means_the_cluster_or_the_namespace_of_the_policy() {
    let spec = format!(r#"{{"priority": 1, "appliedTo": [{{"podSelector": {{}}}}], "ingress": [{ALLOW}]}}"#);
    let cluster = read("", &spec);
    assert_eq!(cluster.applied_to, [Target::Pods(Selected::everyone())]);
    let own = read("x", &spec);
    let Target::Pods(selected) = &own.applied_to[0] else { panic!() };
    assert_eq!(selected.scope, super::super::Scope::Own);
    assert_eq!((own.rules[0].peers.as_ref().unwrap().targets.clone(), own.problems.len()), (own.applied_to.clone(), 0));
}

#[test]
fn an_entry_without_fields_is_nothing_in_the_cluster_and_everything_in_a_namespace() {
    let spec = r#"{"priority": 1, "appliedTo": [{}]}"#;
    assert_eq!((read("", spec).applied_to.len(), fields(&read("", spec))), (0, vec!["spec.appliedTo[0]"]));
    assert_eq!((read("x", spec).applied_to.len(), read("x", spec).problems.len()), (1, 0));
    let odd = read("x", r#"{"priority": 1, "appliedTo": [{"mood": 1}]}"#);
    assert_eq!((odd.applied_to.len(), fields(&odd)), (0, vec!["spec.appliedTo[0].mood", "spec.appliedTo[0]"]));
}

#[test]
fn an_invalid_selector_selects_nothing() {
    let like = r#"{"matchExpressions": [{"key": "a", "operator": "In"}]}"#;
    for selector in ["podSelector", "namespaceSelector"] {
        let reading = read("", &format!(r#"{{"priority": 1, "appliedTo": [{{"{selector}": {like}}}]}}"#));
        assert_eq!(reading.applied_to, []);
        assert_eq!(fields(&reading), [format!("spec.appliedTo[0].{selector}.matchExpressions[0]")]);
        for action in ["Allow", "Drop"] {
            let reading = ingress(&format!(r#"{{"action": "{action}", "from": [{{"{selector}": {like}}}]}}"#));
            assert!(!matches(&reading) && reading.rules[0].peers.is_some());
        }
    }
}

#[test]
fn an_unknown_field_leaves_an_allow_rule_out_and_others_are_enforced_without_it() {
    let peer = r#""from": [{"podSelector": {}, "mood": 1}]"#;
    let port = r#""ports": [{"port": 80, "mood": 1}]"#;
    let block = r#""from": [{"ipBlock": {"cidr": "10.0.0.0/8", "mood": 1}}]"#;
    for (text, field) in [
        (r#""l7Protocols": []"#, "spec.ingress[0].l7Protocols"),
        (r#""to": [{"podSelector": {}}]"#, "spec.ingress[0].to"),
        (peer, "spec.ingress[0].from[0].mood"),
        (port, "spec.ingress[0].ports[0].mood"),
        (block, "spec.ingress[0].from[0].ipBlock.mood"),
    ] {
        for (action, is_left) in [("Allow", false), ("Drop", true), ("Reject", true), ("Pass", true)] {
            let reading = ingress(&format!(r#"{{"action": "{action}", {text}}}"#));
            assert_eq!((fields(&reading), matches(&reading)), (vec![field], is_left), "{action} {text}");
        }
    }
    let spec = |action| {
        format!(
            r#"{{"priority": 1, "mood": 1, "appliedTo": [{{"podSelector": {{}}}}], "ingress": [{{"action": "{action}"}}]}}"#
        )
    };
    assert_eq!((read("", &spec("Allow")).rules.len(), read("", &spec("Drop")).rules.len()), (0, 1));
}

#[test]
fn an_allow_rule_does_not_apply_to_an_entry_with_an_unknown_field() {
    let entries = r#""appliedTo": [{"podSelector": {}}, {"podSelector": {}, "mood": 1}]"#;
    let rules = r#"[{"action": "Allow"}, {"action": "Drop"}]"#;
    let reading = read("", &format!(r#"{{"priority": 1, {entries}, "ingress": {rules}}}"#));
    assert_eq!((reading.applied_to.len(), reading.problems.len()), (2, 1));
    assert_eq!(reading.rules[0].applied_to.as_ref().map(Vec::len), Some(1));
    assert_eq!(reading.rules[1].applied_to, None);
    for (action, count) in [("Allow", 1), ("Drop", 2)] {
        let reading = read("", &format!(r#"{{"priority": 1, "ingress": [{{"action": "{action}", {entries}}}]}}"#));
        assert_eq!(reading.rules[0].applied_to.as_ref().map(Vec::len), Some(count));
    }
}

#[test]
fn parts_that_are_not_supported_match_nothing_and_others_of_the_rule_stay() {
    for peer in [
        r#"{"fqdn": "x.y"}"#,
        r#"{"nodeSelector": {}}"#,
        r#"{"externalEntitySelector": {}}"#,
        r#"{"serviceAccount": {"name": "s", "namespace": "x"}}"#,
        r#"{"podSelector": {}, "scope": "ClusterSet"}"#,
    ] {
        for action in ["Allow", "Drop"] {
            let reading = egress(&format!(r#"{{"action": "{action}", "to": [{peer}]}}"#));
            assert_eq!((reading.problems.len(), matches(&reading)), (1, false), "{peer}");
            let reading = egress(&format!(r#"{{"action": "{action}", "to": [{peer}, {{"podSelector": {{}}}}]}}"#));
            assert_eq!((reading.problems.len(), matches(&reading)), (1, true), "{peer}");
        }
    }
    for part in [
        r#""toServices": [{"name": "s", "namespace": "x"}]"#,
        r#""protocols": [{"icmp": {"icmpType": 8}}]"#,
        r#""protocols": [{"igmp": {}}]"#,
        r#""ports": [{"sourcePort": 80}]"#,
    ] {
        for action in ["Allow", "Drop"] {
            let reading = egress(&format!(r#"{{"action": "{action}", {part}}}"#));
            assert_eq!((reading.problems.len(), matches(&reading)), (1, false), "{part}");
        }
    }
    for entry in [r#"{"nodeSelector": {}}"#, r#"{"serviceAccount": {}}"#, r#"{"service": {}}"#] {
        let reading = read("", &format!(r#"{{"priority": 1, "appliedTo": [{entry}]}}"#));
        assert_eq!((reading.problems.len(), reading.applied_to.len()), (1, 0), "{entry}");
    }
}

#[test]
fn applied_to_stands_in_the_policy_or_in_every_rule() {
    let neither = read("", r#"{"priority": 1, "ingress": [{"action": "Drop"}]}"#);
    assert_eq!(fields(&neither), ["spec.ingress[0].appliedTo"]);
    assert_eq!((neither.applied_to.len(), &neither.rules[0].applied_to), (0, &None));
    let own = r#"{"action": "Drop", "appliedTo": [{"group": "g"}]}"#;
    let both = ingress(own);
    assert_eq!(fields(&both), ["spec.ingress[0].appliedTo"]);
    assert_eq!(both.rules[0].applied_to.as_ref().map(Vec::len), Some(1));
    assert_eq!(fields(&read("", &format!(r#"{{"priority": 1, "ingress": [{own}]}}"#))), Vec::<&str>::new());
}

#[test]
fn fields_that_exclude_each_other_match_nothing() {
    for peer in [
        r#"{"group": "g", "podSelector": {}}"#,
        r#"{"externalEntitySelector": {}, "podSelector": {}}"#,
        r#"{"ipBlock": {"cidr": "10.0.0.0/8"}, "namespaceSelector": {}}"#,
        r#"{"namespaces": {"match": "Self"}, "namespaceSelector": {}}"#,
        r#"{"namespaces": {"match": "Self", "sameLabels": ["a"]}}"#,
        r#"{"namespaces": {"match": "self"}}"#,
        r#"{"namespaces": {"mach": "Self"}, "podSelector": {}}"#,
        r#"{"namespaces": {}}"#,
        r"{}",
    ] {
        let reading = ingress(&format!(r#"{{"action": "Drop", "from": [{peer}]}}"#));
        assert!(!reading.problems.is_empty() && !matches(&reading), "{peer}");
    }
    let entry = read("", r#"{"priority": 1, "appliedTo": [{"group": "g", "podSelector": {}}]}"#);
    assert_eq!((fields(&entry), entry.applied_to.len()), (vec!["spec.appliedTo[0]"], 0));
}

#[test]
fn a_policy_of_a_namespace_selects_no_other_namespaces() {
    let entry = read("x", r#"{"priority": 1, "appliedTo": [{"namespaceSelector": {}}]}"#);
    assert_eq!((fields(&entry), entry.applied_to.len()), (vec!["spec.appliedTo[0].namespaceSelector"], 0));
    let spec = r#"{"priority": 1, "appliedTo": [{}], "ingress": [{"action": "Drop", "from": [{"namespaces": {"match": "Self"}}]}]}"#;
    let peer = read("x", spec);
    assert_eq!((fields(&peer), matches(&peer)), (vec!["spec.ingress[0].from[0].namespaces"], false));
}

#[test]
fn an_invalid_action_drops_and_baseline_cannot_pass() {
    let deny = ingress(r#"{"action": "Deny"}"#);
    assert_eq!((fields(&deny), deny.rules[0].action), (vec!["spec.ingress[0].action"], Action::Drop));
    let spec = |tier| {
        format!(
            r#"{{"tier": "{tier}", "priority": 1, "appliedTo": [{{"podSelector": {{}}}}], "ingress": [{{"action": "Pass"}}]}}"#
        )
    };
    assert_eq!((read("", &spec("platform")).rules.len(), read("", &spec("Baseline")).rules.len()), (1, 0));
}

#[test]
fn names_of_rules_are_unique_over_both_directions() {
    let rule = r#"{"action": "Drop", "name": "a"}"#;
    let reading = read(
        "",
        &format!(
            r#"{{"priority": 1, "appliedTo": [{{"podSelector": {{}}}}], "ingress": [{rule}], "egress": [{rule}]}}"#
        ),
    );
    assert_eq!((fields(&reading), reading.rules.len()), (vec!["spec.egress[0].name"], 2));
}
