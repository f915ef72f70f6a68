//! Arbitrary flows and groups through `ovs-ofctl`: its text of our bytes is our text, and it reads our text as our bytes.

use openflow::arbitrary;
use openflow::flow::{Flow, FlowFlags, FlowMod};
use openflow::group::{Group, GroupMod};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::Scratch;

/// Cases in one call of the tool: starting it costs more than the work.
const BATCH: u32 = 50;

/// How many batches; `PROPTEST_CASES` counts single cases.
fn config() -> Config {
    let cases: u32 = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    Config { cases: cases.div_ceil(BATCH), failure_persistence: None, max_shrink_iters: 300, ..Config::default() }
}

/// A message of OpenFlow 1.5.
fn message(kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![6, kind, 0, 0, 0, 0, 0, 1];
    body(&mut bytes);
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    bytes[2..4].copy_from_slice(&length);
    bytes
}

/// What `ovs-ofctl` prints, an item a message, without the message's name.
fn ofctl(args: &[&str], input: &[u8]) -> Result<Vec<String>, TestCaseError> {
    let dir = Scratch::new().unwrap();
    let file = dir.path().join("input");
    std::fs::write(&file, input).unwrap();
    let output = std::process::Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow15", "--no-names"])
        .args(args)
        .arg(&file)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8(output.stdout).unwrap();
    prop_assert!(output.status.success(), "ovs-ofctl {:?}: {}", args, stderr);
    let messages = stdout.split("OFPT_").skip(1);
    messages
        .map(|text| match text.split_once("):") {
            Some((_, text)) if !text.contains("decode error") => Ok(text.trim().to_owned()),
            _ => Err(TestCaseError::fail(format!("{}\n{stderr}", text.lines().next().unwrap_or_default()))),
        })
        .collect()
}

/// How `ovs-ofctl` prints a flow mod that adds the flow.
fn printed(flow: &Flow) -> String {
    let mut text = String::from("ADD");
    if flow.table != 0 {
        text += &format!(" table:{}", flow.table);
    }
    let body = Flow {
        cookie: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        flags: FlowFlags::empty(),
        table: 0,
        ..flow.clone()
    };
    let body = body.to_string();
    let (head, actions) = body.strip_prefix("table=0, ").unwrap().split_once("actions=").unwrap();
    if !head.trim().is_empty() {
        text += &format!(" {}", head.trim());
    }
    if flow.cookie != 0 {
        text += &format!(" cookie:{:#x}", flow.cookie);
    }
    for (name, value) in [("idle", flow.idle_timeout), ("hard", flow.hard_timeout), ("importance", flow.importance)] {
        if value != 0 {
            text += &format!(" {name}:{value}");
        }
    }
    for (flag, name) in [
        (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
        (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
        (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
    ] {
        if flow.flags.contains(flag) {
            text += &format!(" {name}");
        }
    }
    text + " actions=" + actions
}

fn same_lines(ours: &[String], theirs: &[String]) -> Result<(), TestCaseError> {
    for (ours, theirs) in ours.iter().zip(theirs) {
        prop_assert_eq!(ours, theirs);
    }
    prop_assert_eq!(ours.len(), theirs.len());
    Ok(())
}

#[test]
fn ovs_ofctl_prints_our_flow_bytes_as_our_text() {
    TestRunner::new(config())
        .run(&vec(arbitrary::flow(), 1..=BATCH as usize), |flows| {
            let bytes: Vec<u8> =
                flows.iter().flat_map(|flow| message(14, |out| FlowMod::add(flow.clone()).encode(out))).collect();
            let ours: Vec<String> = flows.iter().map(printed).collect();
            same_lines(&ours, &ofctl(&["ofp-parse"], &bytes)?)
        })
        .unwrap();
}

#[test]
fn ovs_ofctl_reads_our_flow_text_as_our_bytes() {
    TestRunner::new(config())
        .run(&vec(arbitrary::flow(), 1..=BATCH as usize), |flows| {
            let text: String = flows.iter().map(|flow| format!("{flow}\n")).collect();
            let bytes: Vec<u8> =
                flows.iter().flat_map(|flow| message(14, |out| FlowMod::add(flow.clone()).encode(out))).collect();
            same_lines(&ofctl(&["ofp-parse"], &bytes)?, &ofctl(&["parse-flows"], text.as_bytes())?)
        })
        .unwrap();
}

#[test]
fn flows_survive_our_text_and_our_bytes() {
    let config = Config { failure_persistence: None, ..Config::with_cases(config().cases * BATCH) };
    TestRunner::new(config)
        .run(&arbitrary::flow(), |flow| {
            let text = flow.to_string();
            prop_assert_eq!(&text.parse::<Flow>().map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?, &flow);
            let mut bytes = Vec::new();
            FlowMod::add(flow.clone()).encode(&mut bytes);
            prop_assert_eq!(FlowMod::decode(&mut openflow::wire::Reader::new(&bytes)).unwrap().flow, flow);
            Ok(())
        })
        .unwrap();
}

#[test]
fn ovs_ofctl_prints_our_group_bytes_as_our_text() {
    TestRunner::new(config())
        .run(&vec(arbitrary::group(), 1..=BATCH as usize), |groups| {
            let bytes: Vec<u8> =
                groups.iter().flat_map(|group| message(15, |out| GroupMod::Add(group.clone()).encode(out))).collect();
            let theirs = ofctl(&["ofp-parse"], &bytes)?;
            let ours: Vec<String> = groups.iter().map(|group| format!("ADD {group}")).collect();
            same_lines(&ours, &theirs)?;
            for (group, line) in groups.iter().zip(theirs) {
                prop_assert_eq!(&line.trim_start_matches("ADD ").parse::<Group>().unwrap(), group);
            }
            Ok(())
        })
        .unwrap();
}
