//! Rolling upgrade from an earlier version, and rollback, under traffic: in every mixed state, connections go on, denied packets do not
//! pass, policies change, and Pods start.
//!
//! `make test-upgrade` builds the earlier version, and sets `UPGRADE_FROM` to the directory of its programs.

mod traffic;
mod versions;

use std::path::{Path, PathBuf};

use crate::agent::network;
use traffic::Traffic;
use versions::{NODES, Version, Versions};

/// One step of a rollout: what it replaces, and by which version.
type Step = (&'static str, fn(&Versions<'_>, Version), Version);

/// Controllers first, then the Nodes one by one, as in a cluster; and back in the same order.
fn steps() -> Vec<Step> {
    let rollout = |to: Version| -> [Step; 5] {
        [
            ("controller 1", |versions, to| versions.replace_controller(0, to), to),
            ("controller 2", |versions, to| versions.replace_controller(1, to), to),
            ("agent of node-1", |versions, to| versions.replace_agent(NODES[0], to), to),
            ("agent of node-2", |versions, to| versions.replace_agent(NODES[1], to), to),
            ("agent of node-3", |versions, to| versions.replace_agent(NODES[2], to), to),
        ]
    };
    [rollout(Version::New), rollout(Version::Old)].concat()
}

#[test]
#[ignore = "needs make upgrade"]
fn an_upgrade_and_its_rollback_break_no_connection_and_open_no_policy() {
    let old = PathBuf::from(std::env::var_os("UPGRADE_FROM").expect("UPGRADE_FROM: set by `make test-upgrade`"));
    let new = Path::new(env!("CARGO_BIN_EXE_antrea-lab")).parent().unwrap();
    let programs = old.to_str().unwrap();
    let (lab, api) = network("upgrade", 3, &["--controllers", "2", "--programs", programs]);
    let versions = Versions::new(&lab, &old, new);
    let traffic = Traffic::start(&lab, &api);
    println!("{}", traffic::HEAD);
    println!("{} {}", traffic.row("before", || {}), versions.summary());
    for (what, replace, to) in steps() {
        let row = traffic.row(&format!("{what}: {to}"), || {
            replace(&versions, to);
            versions.until_connected();
        });
        println!("{row} {}", versions.summary());
    }
    traffic.end();
}
