//! `antctl replay` with the recording of an agent to which one Pod was attached and detached.

use std::path::Path;
use std::process::Command;

use testkit::Scratch;

const RECORDING: &str = include_str!("recording.jsonl");

fn antctl(text: impl AsRef<[u8]>, args: &[&str]) -> Result<String, String> {
    let dir = Scratch::new().unwrap();
    let file = dir.path().join("events.jsonl");
    std::fs::write(&file, text).unwrap();
    run(&file, args)
}

fn run(file: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_antctl")).arg("replay").arg(file).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&file.display().to_string(), "FILE");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn steps_show_what_happened_what_changed_and_for_which_object() {
    let shown = antctl(RECORDING, &["--last", "100"]).unwrap();
    let lines = [
        "  event    CNI 1 ADD of Pod default/web, interface eth0 of container container-of-web",
        "  request  CNI 1: create veth web-a9c5a0",
        "  switch   + table=0, priority=190,in_port=16 actions=set_field:0x2/0xf->reg0,resubmit(,10)  [Pod default/web]",
        "  event    OVSDB port web-a9c5a0 has OpenFlow port 16",
        "  request  CNI 1: reply success",
        "  switch   - table=0, priority=190,in_port=16  [Pod default/web]",
        "  request  delete veth web-a9c5a0",
        "at the end: 194 flows, 0 groups, 0 routes, 0 Pod ports",
    ];
    let mut rest = shown.as_str();
    for line in lines {
        let at = rest.find(&format!("{line}\n")).unwrap_or_else(|| panic!("`{line}` is not below in:\n{shown}"));
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn steps_are_selected_by_number_by_time_and_by_change() {
    let steps = |args: &[&str]| antctl(RECORDING, args).unwrap().matches("\nstep ").count();
    assert_eq!(steps(&["--last", "0"]), 0);
    // The first step has no line before it.
    assert_eq!(antctl(RECORDING, &["--last", "1"]).unwrap().matches("step 26").count(), 1);
    assert!(steps(&["--from", "0.15", "--to", "0.17"]) < steps(&["--from", "0.15"]));
    assert!(steps(&["--last", "100", "--changes"]) < steps(&["--last", "100"]));
    assert!(antctl(RECORDING, &["--last", "0", "--state"]).unwrap().contains("\ntable=0, priority=0 actions=drop\n"));
}

#[test]
fn a_recording_that_a_killed_agent_left_is_replayed_to_its_last_complete_line() {
    let torn = &RECORDING.as_bytes()[..RECORDING.len() - 30];
    // The write may have ended within a character.
    for torn in [torn.to_vec(), [torn, "\u{2026}".as_bytes().split_last().unwrap().1].concat()] {
        let shown = antctl(torn, &["--last", "0"]).unwrap();
        assert!(shown.starts_with("25 steps") && shown.contains("the last line is incomplete"), "{shown}");
    }
}

#[test]
fn a_file_that_is_not_a_recording_is_rejected_with_its_line() {
    assert_eq!(antctl("", &[]).unwrap_err(), "antctl: FILE: line 1: the recording is empty\n");
    let error = antctl("{}\n", &[]).unwrap_err();
    assert!(error.starts_with("antctl: FILE: line 1: missing field `format`"), "{error}");
    let (header, rest) = RECORDING.split_once('\n').unwrap();
    let error = antctl(format!("{header}\nnonsense\n{rest}"), &[]).unwrap_err();
    assert!(error.starts_with("antctl: FILE: line 2: expected ident"), "{error}");
    let error = antctl(RECORDING.replacen("\"format\":1", "\"format\":2", 1), &[]).unwrap_err();
    assert!(error.contains("use an antctl of the agent's version"), "{error}");
    assert!(run(Path::new("/nonexistent"), &[]).unwrap_err().contains("cannot be read"));
}
