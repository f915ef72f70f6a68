//! Traces of Pods on a Node: flows, ports, addresses, devices and routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use testkit::ovs::in_kernel;
use testkit::wait::until;

use crate::lab::{Kube, Lab, TIMEOUT};

/// Directory of the allocated addresses in a Node.
const IPAM: &str = "var/lib/cni/networks/antrea";

/// Everything on a Node that belongs to a Pod: addresses and devices, by source.
#[derive(PartialEq, Eq, Debug)]
struct Traces {
    addresses: Vec<(&'static str, BTreeSet<String>)>,
    devices: Vec<(&'static str, BTreeSet<String>)>,
}

impl Traces {
    fn of(lab: &Lab, api: &Kube, node: &str) -> Self {
        let ipam = std::fs::read_dir(lab.root(node).join(IPAM)).unwrap();
        let ipam = ipam.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_address = |name: &String| name.parse::<IpAddr>().is_ok();
        let is_pod = |name: &&str| name.contains('-') && !name.starts_with("antrea-") && !name.starts_with("ovs-");
        let run = |command: &str| lab.node(node, &["sh", "-c", command]).unwrap();
        let words = |text: String| -> BTreeSet<String> {
            text.split_whitespace().filter(is_pod).map(|word| word.trim_matches('"').to_owned()).collect()
        };
        let rows = run("ovs-vsctl --bare --columns=external_ids list Interface");
        let in_rows = rows.split_whitespace().filter_map(|pair| pair.strip_prefix("ip-address="));
        let mut devices = vec![
            ("kernel", words(run("ip -br link show type veth | grep -v '^eth0' | cut -d@ -f1"))),
            ("switch", words(run("ovs-vsctl list-ports br-int"))),
        ];
        // The kernel's datapath takes packets away from the kernel's stack: no chain has to drop them.
        if !in_kernel() {
            let chains = "nft list chains netdev | grep -o 'device \"[^\"]*\"' | cut -d' ' -f2 | sed '/eth0/d'";
            devices.push(("firewall", words(run(chains))));
        }
        Self {
            devices,
            addresses: vec![
                ("Kubernetes", addresses(api, node)),
                ("IPAM", ipam.filter(is_address).collect()),
                ("database", in_rows.flat_map(|list| list.split(',')).map(str::to_owned).collect()),
            ],
        }
    }

    fn agree(&self) -> bool {
        let same = |sets: &[(&str, BTreeSet<String>)]| sets.windows(2).all(|pair| pair[0].1 == pair[1].1);
        // Two addresses for each device.
        same(&self.addresses) && same(&self.devices) && self.addresses[0].1.len() == 2 * self.devices[0].1.len()
    }
}

/// The addresses of a Node's Pods in the Kubernetes API.
fn addresses(api: &Kube, node: &str) -> BTreeSet<String> {
    let pods: Api<Pod> = Api::all(api.client.clone());
    let list = api.wait(pods.list(&kube::api::ListParams::default())).unwrap();
    let here = list.items.into_iter().filter(|pod| {
        let spec = pod.spec.as_ref().unwrap();
        spec.node_name.as_deref() == Some(node) && spec.host_network != Some(true)
    });
    let ips = here.flat_map(|pod| pod.status.and_then(|status| status.pod_ips).unwrap_or_default());
    ips.map(|ip| ip.ip).collect()
}

/// Waits until a Node has an address, a device, a port and a chain for each of its Pods, and none for anyone else.
pub(crate) fn until_only_pods_have_any(lab: &Lab, api: &Kube, node: &str) {
    let mut last = None;
    let agree = || {
        let traces = Traces::of(lab, api, node);
        let agree = traces.agree();
        last = Some(traces);
        agree.then_some(())
    };
    let found = until(format_args!("{node} holds what its Pods need, and nothing else"), TIMEOUT, agree);
    found.unwrap_or_else(|error| panic!("{error:#}\n{last:#?}"));
}

/// All that the agent of a Node has set up: flows, groups, routes, also of ovs-vswitchd, neighbours, the firewall's table. An error if that is not
/// there at all.
pub(crate) fn set_up(lab: &Lab, node: &str) -> Result<BTreeSet<String>, String> {
    let commands = "ovs-ofctl --no-stats -O OpenFlow15 dump-flows br-int | grep actions=
        ovs-ofctl -O OpenFlow15 dump-groups br-int | grep group_id=
        ovs-ofctl --no-stats -O OpenFlow15 dump-flows antrea-phy0 | grep actions=
        ovs-appctl ovs/route/show | grep User
        for family in -4 -6; do ip $family route show table all dev antrea-gw0; ip $family neigh show nud permanent; done
        nft -s list table inet antrea";
    let text = lab.node(node, &["sh", "-c", commands])?;
    Ok(text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// Removes flows, groups, routes and nftables rules while the agent is stopped, and restarts the agent.
pub(crate) fn start_afresh(lab: &Lab, node: &str) {
    let agent = lab.pid(node, "antrea-agent").unwrap();
    let commands = format!(
        "kill -STOP {agent}
        ovs-ofctl -O OpenFlow15 del-flows br-int && ovs-ofctl -O OpenFlow15 del-groups br-int
        ovs-ofctl -O OpenFlow15 del-flows antrea-phy0
        for route in $(ovs-appctl ovs/route/show | sed -n 's/^User: \\([^ ]*\\) .*/\\1/p'); do ovs-appctl ovs/route/del $route; done
        for family in -4 -6; do
            ip $family route flush dev antrea-gw0 proto 167; ip $family neigh flush dev antrea-gw0 nud permanent
        done
        nft delete table inet antrea
        kill -KILL {agent}"
    );
    lab.node(node, &["sh", "-c", &commands]).unwrap();
    let another = || lab.pid(node, "antrea-agent").filter(|pid| *pid != agent);
    until("another agent", TIMEOUT, another).unwrap();
}
