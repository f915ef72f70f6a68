//! `antctl pipeline` with the example file.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Ovs, Scratch};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/pipeline/example-state.yaml")
}

/// The standard output of the command, or its error.
fn antctl(args: &[&str], file: &Path) -> Result<String, String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_antctl")).arg("pipeline").args(args).arg("-f").arg(file).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The error for the example with one part replaced.
fn error_for(from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(example()).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    let dir = Scratch::new().unwrap();
    let file = dir.path().join("state.yaml");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    let error = antctl(&["render"], &file).unwrap_err();
    error.replace(&format!("{}", file.display()), "state.yaml").trim_end().to_owned()
}

#[test]
fn a_switch_accepts_the_rendered_flows_and_groups_unchanged() {
    let flows = antctl(&["render"], &example()).unwrap();
    let groups = antctl(&["render", "--groups"], &example()).unwrap();
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br-int").unwrap();
    ovs.ofctl_stdin(["add-groups", "br-int", "-"], &groups).unwrap();
    ovs.ofctl_stdin(["add-flows", "br-int", "-"], &flows).unwrap();
    let sorted = |text: &str| {
        let mut flows: Vec<openflow::flow::Flow> =
            text.lines().filter(|line| line.contains("actions=")).map(|line| line.parse().unwrap()).collect();
        flows.sort_by_key(ToString::to_string);
        flows
    };
    let held = ovs.ofctl(["--no-stats", "dump-flows", "br-int"]).unwrap();
    assert_eq!(sorted(&held), sorted(&flows));
}

#[test]
fn explain_names_the_owner_of_every_flow() {
    let text = antctl(&["render", "--explain"], &example()).unwrap();
    for owner in ["# Node\n", "# Pod default/client\n", "# Node node2\n", "# Service default/web:http\n"] {
        assert!(text.contains(owner), "{owner}");
    }
    let clause = "# NetworkPolicy default/web ingress[0] (2126306545)\n\
        table=90, priority=200,ip,nw_src=10.10.0.4 actions=conjunction(2126306545,1/3)\n";
    assert!(text.contains(clause), "{text}");
}

#[test]
fn a_diagram_shows_the_tables_in_use() {
    let svg = antctl(&["diagram"], &example()).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains(">ServiceLb</text>") && svg.contains("table 41 · "), "{svg}");
    assert!(!svg.contains("NdResponder"), "the example has no IPv6");
}

#[test]
fn errors_name_file_document_object_and_field() {
    for (from, to, expected) in [
        (
            "mode: encap",
            "mood: encap",
            "antctl: state.yaml: document 1: NodeState node1: mood: unknown field `mood`, expected one of",
        ),
        (
            "mode: encap",
            "mode: encaps",
            "antctl: state.yaml: document 1: NodeState node1: mode: unknown variant `encaps`",
        ),
        (
            "podIP: 10.10.0.4, podIPs: [{ip: 10.10.0.4}]",
            "podIP: 10.20.0.4, podIPs: [{ip: 10.20.0.4}]",
            "antctl: state.yaml: document 5: Pod default/client: status.podIPs: 10.20.0.4 is outside the podCIDR of Node node1",
        ),
        (
            "podIP: 10.10.0.4, podIPs: [{ip: 10.10.0.4}]",
            "podIP: 10.10.0.3, podIPs: [{ip: 10.10.0.3}]",
            "antctl: state.yaml: interface default-web-1: address 10.10.0.3 is in use by interface default-client, which keeps it",
        ),
        (
            "podSelector: {matchLabels: {app: client}}",
            "podSelector: {matchExpressions: [{key: app, operator: Like, values: [client]}]}",
            "antctl: state.yaml: document 8: NetworkPolicy default/web: spec.ingress[0].from[0].podSelector.matchExpressions[0]: \
             operator: `Like` is none of In, NotIn, Exists, DoesNotExist",
        ),
        (
            "port: 80, nodePort: 30001",
            "port: 80, nodePort: lots",
            "antctl: state.yaml: document 6: Service default/web: spec.ports[0].nodePort: invalid type: string \"lots\"",
        ),
        (
            "kind: EndpointSlice",
            "kind: Endpoint",
            "antctl: state.yaml: document 7: Endpoint default/web-abc: kind: `Endpoint` is none of",
        ),
        (
            "node: node1\n",
            "node: node9\n",
            "antctl: state.yaml: document 1: NodeState node9: node: there is no Node with this name in the file",
        ),
        (
            "podCIDRs: [10.10.1.0/24]",
            "podCIDRs: [10.10.1.0/33]",
            "antctl: state.yaml: document 2: items[1]: Node node2: spec.podCIDRs: `10.10.1.0/33` is not a range of addresses",
        ),
        ("kind: NodeState", "kind: [", "antctl: state.yaml: "),
    ] {
        let error = error_for(from, to);
        assert!(error.starts_with(expected), "\n{error}\n{expected}");
    }
}

const CLIENT_TO_SERVICE: &str = "in_port=4,tcp,dl_src=0a:58:0a:0a:00:04,dl_dst=0a:0a:00:00:01:01,nw_src=10.10.0.4,\
    nw_dst=10.96.0.10,tp_src=1000,tp_dst=80,tcp_flags=syn";
const ANSWER: &str = "in_port=3,tcp,dl_src=0a:00:0a:0a:01:01,dl_dst=0a:58:0a:0a:00:04,nw_src=10.10.0.3,\
    nw_dst=10.10.0.4,tp_src=8080,tp_dst=1000,tcp_flags=syn|ack";

#[test]
fn the_packets_of_a_conversation_are_traced_in_order() {
    let text = antctl(&["trace", "--packet", CLIENT_TO_SERVICE, "--packet", ANSWER], &example()).unwrap();
    let ends: Vec<&str> = text.lines().filter(|line| line.starts_with("=> ")).collect();
    assert_eq!(
        ends,
        [
            "=> port 3: tcp 10.10.0.4:1000 > 10.10.0.3:8080 syn ttl 63 (0a:0a:00:00:01:01 > 0a:00:0a:0a:01:01)",
            "=> port 4: tcp 10.96.0.10:80 > 10.10.0.4:1000 syn+ack ttl 63 (0a:0a:00:00:01:01 > 0a:58:0a:0a:00:04)",
        ]
    );
    assert!(text.contains("[NetworkPolicy default/web ingress[0] (2126306545)] (conjunction 2126306545)"), "{text}");
}

#[test]
fn a_json_trace_has_the_reason_of_a_drop() {
    let spoofed = CLIENT_TO_SERVICE.replace("nw_src=10.10.0.4", "nw_src=10.10.0.9");
    let text = antctl(&["trace", "--packet", &spoofed, "-o", "json"], &example()).unwrap();
    let traces: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(traces[0]["verdict"]["dropped"], "a flow of table 10 drops it");
    assert_eq!(traces[0]["steps"][0]["owners"][0], "Pod default/client");
    let error = antctl(&["trace", "--packet", "in_port=4,tcp,nw_src=10.0.0.300"], &example()).unwrap_err();
    assert!(error.starts_with("antctl: packet 1: `10.0.0.300`: needs an IPv4 address"), "{error}");
}
