//! Notifications when the kernel state changes.

use std::collections::BTreeSet;

use host::watch::{Change, Watch};
use host::{Kernel, nft};
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, veth_pair};
use types::host::{Address, Firewall, Neighbour, Op, Route};

/// A watch in `node`, with helpers that wait for its notifications.
struct Watcher {
    runtime: tokio::runtime::Runtime,
    watch: Watch,
}

impl Watcher {
    fn new(node: &Netns) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = || runtime.block_on(async { Watch::open(["antrea-gw0".to_owned()]).unwrap() });
        let watch = node.run(open).unwrap();
        Self { runtime, watch }
    }

    /// Waits until this change is reported, possibly with others.
    fn wait_for(&mut self, change: Change) {
        let listen = async { while !self.watch.changed().await.unwrap().contains(&change) {} };
        let heard = self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, listen).await });
        heard.unwrap_or_else(|_| panic!("{change:?} is not reported"));
    }

    /// All changes reported until this one is.
    fn until(&mut self, change: Change) -> BTreeSet<Change> {
        let listen = async {
            let mut all = BTreeSet::new();
            while !all.contains(&change) {
                all.extend(self.watch.changed().await.unwrap());
            }
            all
        };
        self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, listen).await }).unwrap()
    }
}

fn node() -> (Netns, Netns) {
    let (node, other) = (Netns::new().unwrap(), Netns::new().unwrap());
    veth_pair(&node, "antrea-gw0", &other, "peer").unwrap();
    other.link_up("peer").unwrap();
    // No notifications from the kernel itself.
    node.ip(["link", "set", "antrea-gw0", "addrgenmode", "none", "up"]).unwrap();
    let up = || node.ip(["link", "show", "antrea-gw0"]).unwrap().contains("state UP").then_some(());
    until("the gateway to be up", TIMEOUT, up).unwrap();
    (node, other)
}

fn firewall() -> Firewall {
    Firewall { gateway: "antrea-gw0".into(), ..Firewall::default() }
}

fn apply(node: &Netns, ops: &[Op]) {
    assert!(node.run(|| Kernel::open().unwrap().apply(ops)).unwrap().is_empty());
}

fn ours() -> Vec<Op> {
    let device = || "antrea-gw0".to_owned();
    vec![
        Op::AddAddress(Address { device: device(), net: "10.10.0.1/24".parse().unwrap() }),
        Op::PutNeighbour(Neighbour {
            device: device(),
            ip: "10.10.1.1".parse().unwrap(),
            mac: types::Mac::GLOBAL_VIRTUAL,
        }),
        Op::PutRoute(Route::onlink("10.10.1.0/24".parse().unwrap(), "10.10.1.1".parse().unwrap(), "antrea-gw0")),
    ]
}

#[test]
fn every_change_of_our_objects_is_reported() {
    let (node, _other) = node();
    apply(&node, &ours());
    node.run(|| nft::replace(&firewall())).unwrap().unwrap();
    let mut heard = Watcher::new(&node);
    for (command, change) in [
        ("route del 10.10.1.0/24", Change::Routes),
        ("neigh del 10.10.1.1 dev antrea-gw0", Change::Neighbours),
        ("addr del 10.10.0.1/24 dev antrea-gw0", Change::Addresses),
        ("link set antrea-gw0 mtu 1300", Change::Links),
        ("rule add pref 300 lookup 300", Change::Rules),
        ("link del antrea-gw0", Change::Links),
    ] {
        node.ip(command.split(' ')).unwrap();
        heard.wait_for(change);
    }
    let nft = ["flush", "chain", "inet", "antrea", "nat-postrouting"];
    testkit::process::run(node.command("nft").args(nft), None).unwrap();
    heard.wait_for(Change::Firewall);
    // A device that was deleted and created again is recognised.
    let other = Netns::new().unwrap();
    veth_pair(&node, "antrea-gw0", &other, "peer").unwrap();
    heard.wait_for(Change::Links);
    node.add_address("antrea-gw0", "10.10.0.1/24").unwrap();
    heard.wait_for(Change::Addresses);
}

#[test]
fn changes_of_foreign_objects_are_not_reported() {
    let (node, other) = node();
    apply(&node, &ours());
    let mut heard = Watcher::new(&node);
    veth_pair(&node, "theirs", &other, "theirs").unwrap();
    node.link_up("theirs").unwrap();
    node.add_address("theirs", "192.0.2.1/24").unwrap();
    node.ip(["route", "add", "10.77.0.0/16", "dev", "antrea-gw0"]).unwrap();
    node.ip(["neigh", "add", "10.10.0.9", "lladdr", "02:00:00:00:00:09", "dev", "antrea-gw0", "nud", "stale"]).unwrap();
    node.run(|| host::pod::detach("none")).unwrap().unwrap();
    testkit::process::run(node.command("nft").args(["add", "table", "inet", "theirs"]), None).unwrap();
    testkit::process::run(node.command("nft").args(["add", "table", "netdev", "antrea"]), None).unwrap();
    // Marks the end of the changes above, which are not reported.
    node.ip(["route", "del", "10.10.1.0/24"]).unwrap();
    assert_eq!(heard.until(Change::Routes), [Change::Routes].into());
    node.run(|| nft::replace(&firewall())).unwrap().unwrap();
    assert_eq!(heard.until(Change::Firewall), [Change::Firewall].into());
}

#[test]
fn a_buffer_overflow_reports_every_kind_of_change() {
    let (node, _other) = node();
    apply(&node, &ours());
    let mut heard = Watcher::new(&node);
    // Without reading in between.
    let routes: Vec<Op> = (0..4000_u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            Op::PutRoute(Route::link(format!("10.{}.{low}.0/24", 100 + high).parse().unwrap(), "antrea-gw0"))
        })
        .collect();
    apply(&node, &routes);
    let all = heard.until(Change::Firewall);
    assert_eq!(all.len(), 6, "{all:?}");
}
