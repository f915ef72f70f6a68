//! Our flows for the scenarios of the reference documents equal the documents' flows, except for listed differences.
//!
//! `UPDATE_GOLDEN=1 cargo test -p pipeline every_flow` updates our side. New lines have no reason, and the tests fail until one
//! is added.

mod file;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs};

use file::{Entry, Golden, Side};

const DOCUMENTS: [&str; 4] = ["seed-000.txt", "seed-001.txt", "seed-003.txt", "seed-004.txt"];

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../scenarios/pipeline", name].iter().collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The subject of an erratum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Flows that a document shows or should show.
    Flow,
    /// The same, and the document's line is no valid flow.
    Syntax,
    /// Settled by the numbers of a scenario.
    Scenario,
    /// Flows that no document shows.
    Elsewhere,
    /// The host, not the switch.
    Host,
    /// The prose of a document.
    Text,
}

fn errata() -> BTreeMap<String, Kind> {
    let kinds = [
        ("flow", Kind::Flow),
        ("syntax", Kind::Syntax),
        ("scenario", Kind::Scenario),
        ("elsewhere", Kind::Elsewhere),
        ("host", Kind::Host),
        ("text", Kind::Text),
    ];
    let mut errata = BTreeMap::new();
    for line in read("errata.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (id, kind) = (words.next().unwrap(), words.next().unwrap());
        let kind = kinds.iter().find(|(name, _)| *name == kind).unwrap_or_else(|| panic!("{id}: no kind `{kind}`")).1;
        assert!(words.next().is_some(), "{id} does not say what it is");
        assert!(errata.insert(id.to_owned(), kind).is_none(), "{id} is there twice");
    }
    errata
}

#[test]
fn every_flow_equals_the_document_or_is_a_listed_difference() {
    let mut complaints = Vec::new();
    for name in DOCUMENTS {
        let text = read(name);
        let golden = Golden::parse(&text);
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(path(name), golden.updated(scenario::compile)).unwrap();
            continue;
        }
        for fragment in golden.fragments() {
            let mut complain = |what: String| complaints.push(format!("{name}, {}: {what}", fragment.title));
            let mut ours = scenario::compile(&fragment);
            for line in fragment.lines.iter().filter(|line| line.side.is_ours()) {
                match Entry::parse(&line.text) {
                    Err(e) => complain(e),
                    Ok(entry) => match ours.iter().position(|e| *e == entry) {
                        Some(at) => drop(ours.remove(at)),
                        None => complain(format!("ours lacks (or has it twice here)\n  {entry}")),
                    },
                }
            }
            for entry in ours {
                complain(format!("not listed\n+ {entry}"));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn every_difference_has_a_reason_and_every_reason_a_difference() {
    let errata = errata();
    let mut used = BTreeSet::new();
    let mut complaints = Vec::new();
    for name in DOCUMENTS {
        for fragment in Golden::parse(&read(name)).fragments() {
            let ours: Vec<Entry> = scenario::compile(&fragment);
            for line in &fragment.lines {
                let mut complain =
                    |what: String| complaints.push(format!("{name}, {}: {what}\n  {}", fragment.title, line.text));
                let reasons: Vec<&str> = line.errata().collect();
                if matches!(line.side, Side::Document | Side::Ours) && reasons.is_empty() {
                    complain("no reason".into());
                }
                let mut malformed = false;
                for id in &reasons {
                    match errata.get(*id) {
                        Some(Kind::Flow) => {}
                        Some(Kind::Syntax) => malformed = true,
                        Some(kind) => complain(format!("{id} is about something else ({kind:?})")),
                        None => complain(format!("{id} is not in errata.txt")),
                    }
                    used.insert((*id).to_owned());
                }
                if line.side == Side::Document {
                    match Entry::parse(&line.text) {
                        Ok(entry) if ours.contains(&entry) => complain("is no difference".into()),
                        Err(e) if !malformed => complain(e),
                        _ => {}
                    }
                }
            }
        }
    }
    for (id, kind) in errata {
        if matches!(kind, Kind::Flow | Kind::Syntax) && !used.contains(&id) {
            complaints.push(format!("{id} is about flows, but no line has it"));
        }
    }
    assert_none(&complaints);
}

#[test]
fn a_document_that_shows_all_tables_is_compared_in_all() {
    for name in DOCUMENTS {
        let golden = Golden::parse(&read(name));
        if !golden.defaults().contains_key("whole") {
            continue;
        }
        let fragments = golden.fragments();
        let shown: BTreeSet<u8> = fragments.iter().map(|fragment| fragment.table).collect();
        let had: BTreeSet<u8> = fragments.iter().flat_map(|fragment| scenario::tables(&fragment.settings)).collect();
        assert_eq!(shown, had, "{name}");
    }
}

#[test]
fn an_update_of_current_files_changes_nothing() {
    for name in DOCUMENTS {
        let text = read(name);
        let updated = Golden::parse(&text).updated(scenario::compile);
        let changed = text.lines().zip(updated.lines()).find(|(before, after)| before != after);
        assert_eq!(changed, None, "{name}");
        assert_eq!(text.lines().count(), updated.lines().count(), "{name}");
    }
}

#[test]
fn an_update_adds_no_reasons() {
    let text = "\
mode: encap
feature: none
datapath: system
gateway: port=2 mac=0a:00:00:00:00:01 ip=10.10.0.1
node: ip=192.168.77.100 pods=10.10.0.0/24 snat=10.10.0.254
virtual: service=169.254.0.253 hairpin=169.254.169.252

== L2ForwardingOutTable (110)
- table=110, priority=0 actions=drop  # P1
  table=110, priority=100,ip actions=drop

# Another.
";
    let updated = Golden::parse(text).updated(scenario::compile);
    let (_, lines) = updated.split_once("(110)\n").unwrap();
    assert_eq!(
        lines,
        "  table=110, priority=0 actions=drop
- table=110, priority=100,ip actions=drop
+ table=110, priority=200,ip,reg0=0x10000/0x10000 actions=output:NXM_NX_REG1[]

# Another.
"
    );
}
