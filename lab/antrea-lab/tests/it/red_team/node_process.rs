//! Attacks of a process on a Node, or of a broken Node, on its agent.

use std::time::Duration;

use testkit::wait::until;

use super::attack::Attacker::NodeProcess;
use super::attack::{Attack, Effect};
use super::field::Field;
use crate::lab::{TIMEOUT, is_ready, pause};

/// How long a Pod may take to start in spite of it.
const START: Duration = Duration::from_secs(10);

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("an IPAM file that is not UTF-8", NodeProcess, ipam),
    Attack::steps("hostile CNI input", NodeProcess, cni),
    Attack::steps("garbage at the CNI socket", NodeProcess, socket),
    Attack::steps("garbage in the OVS database, agent killed", NodeProcess, database).long(),
    Attack::steps("full disk", NodeProcess, full_disk).long(),
];

/// Whether a new Pod starts.
fn starts(f: &Field, name: &str) -> bool {
    f.api.pod(name, pause("node-1"));
    let started = until("a Pod", START, || f.api.get(name).filter(is_ready)).is_ok();
    if started {
        f.api.delete(name);
    }
    started
}

fn ipam(f: &Field, _: usize) -> Effect {
    let directory = f.node("node-1", "dirname $(find /var/lib/cni -name '10.10.1.*' | head -1)").unwrap();
    let file = format!("{}/10.10.1.250", directory.trim());
    f.node("node-1", &format!("printf '\\377\\376\\000' > {file}")).unwrap();
    let started = starts(f, "after-ipam");
    f.node("node-1", &format!("rm {file}")).unwrap();
    if !started {
        let _ = until("a Pod", TIMEOUT, || f.api.get("after-ipam").filter(is_ready));
        f.api.delete("after-ipam");
    }
    Effect::new(1, usize::from(!started), if started { "" } else { "no Pod starts" })
}

fn cni(f: &Field, _: usize) -> Effect {
    let config = r#"{"cniVersion":"1.0.0","name":"antrea","type":"antrea-cni","ipam":{"type":"host-local"}}"#;
    let good = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "evil"),
        ("CNI_NETNS", "/proc/1/ns/net"),
        ("CNI_IFNAME", "eth7"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=evil"),
    ];
    // One thing is wrong in each; the first would put a Pod's interface into the Node itself.
    let wrong = [
        ("CNI_NETNS", "/proc/1/ns/net"),
        ("CNI_NETNS", "/etc/passwd"),
        ("CNI_NETNS", "../../../../proc/1/ns/net"),
        ("CNI_NETNS", ""),
        ("CNI_CONTAINERID", "../../../../etc/cron.d/x"),
        ("CNI_CONTAINERID", "a\nb"),
        ("CNI_IFNAME", "eth0/../../x"),
        ("CNI_IFNAME", "this-name-is-far-too-long-for-a-device"),
        ("CNI_IFNAME", "lo"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=../..;K8S_POD_NAME=;;;=;"),
        ("CNI_COMMAND", "EXPLODE"),
    ];
    let inputs = [
        config,
        "",
        "{",
        "[]",
        "null",
        r#"{"cniVersion":"99.0.0","name":"antrea","type":"antrea-cni"}"#,
        r#"{"cniVersion":"1.0.0","name":"../../x","type":"antrea-cni","prevResult":{"interfaces":[{}],"ips":[{"address":"garbage"}]}}"#,
    ];
    let before = f.node("node-1", "ip -o link | wc -l").unwrap();
    let (mut calls, mut taken) = (0, Vec::new());
    let mut call = |(key, value): (&str, &str), input: &str| {
        let environment: Vec<String> =
            good.iter().map(|(name, usual)| format!("{name}='{}'", if *name == key { value } else { usual })).collect();
        let command = format!("printf '%s' '{input}' | {} timeout 20 /opt/cni/bin/antrea-cni", environment.join(" "));
        calls += 1;
        if f.node("node-1", &command).is_ok() {
            taken.push(format!("{key}={value:?} was taken"));
        }
    };
    wrong.iter().for_each(|wrong| call(*wrong, config));
    inputs.iter().skip(1).for_each(|input| call(("CNI_NETNS", "/proc/1/ns/net"), input));
    let long = format!("{{\"x\":\"{}\"}}", "[".repeat(100_000));
    call(("CNI_NETNS", "/proc/1/ns/net"), &long);
    let after = f.node("node-1", "ip -o link | wc -l").unwrap();
    let mut notes = taken;
    if before != after {
        notes.push("the Node's devices have changed".to_owned());
    }
    if !f.agent_lives("node-1") {
        notes.push("the agent does not answer".to_owned());
    }
    Effect::new(calls, notes.len(), notes.join(", "))
}

/// Bytes that are no HTTP/2, and connections that say nothing.
fn socket(f: &Field, _: usize) -> Effect {
    let path = f.lab.root("node-1").join("run/antrea/cni.sock");
    let mut kept = Vec::new();
    for n in 0..200u32 {
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&path) else { continue };
        let garbage: &[u8] = match n % 4 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\n\r\n",
            2 => &[0xff; 4096],
            _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x01\xff\0\0\0\x01",
        };
        let _ = std::io::Write::write_all(&mut stream, garbage);
        kept.push(stream);
    }
    let started = starts(f, "after-garbage");
    if !started {
        kept.clear();
        let _ = until("a Pod", TIMEOUT, || f.api.get("after-garbage").filter(is_ready));
        f.api.delete("after-garbage");
    }
    Effect::new(200, usize::from(!started), if started { "" } else { "no Pod starts" })
}

fn database(f: &Field, _: usize) -> Effect {
    let commands = "ovs-vsctl add-port br-int bogus -- set interface bogus type=internal external_ids:container-id=x external_ids:ip-address=garbage external_ids:attached-mac=zz
        ovs-vsctl set bridge br-int external_ids:antrea-type=garbage
        ovs-vsctl set Open_vSwitch . external_ids:roundNum=garbage external_ids:round-num=-1
        ovs-vsctl add-port br-int bogus2 -- set interface bogus2 type=patch options:peer=nowhere";
    f.node("node-1", commands).unwrap();
    let _ = crate::endurance::kill(&f.lab, "node-1", "antrea-agent");
    let lives = until("the agent", TIMEOUT, || f.agent_lives("node-1").then_some(())).is_ok();
    let started = starts(f, "after-database");
    f.node("node-1", "ovs-vsctl --if-exists del-port bogus -- --if-exists del-port bogus2").unwrap();
    Effect::new(
        4,
        usize::from(!lives) + usize::from(!started),
        if lives && started { "" } else { "the agent does not come back" },
    )
}

fn full_disk(f: &Field, _: usize) -> Effect {
    // As large as it needs to be to be full at once.
    // The agent may release the address of an earlier attempt meanwhile: the copy is complete if no file disappears.
    let fill = "until rm -rf /tmp/cni && cp -a /var/lib/cni /tmp/cni 2>/dev/null; do :; done && mount -t tmpfs -o size=64k tmpfs /var/lib/cni && cp -a /tmp/cni/. /var/lib/cni/ && \
        (dd if=/dev/zero of=/var/lib/cni/full bs=1k 2>/dev/null; true)";
    f.node("node-1", fill).unwrap();
    let refused = !starts(f, "full");
    let lives = f.agent_lives("node-1");
    f.node("node-1", "rm /var/lib/cni/full; cp -a /var/lib/cni/. /tmp/cni/; umount /var/lib/cni; cp -a /tmp/cni/. /var/lib/cni/; rm -r /tmp/cni").unwrap();
    let recovers = until("a Pod", TIMEOUT, || f.api.get("full").filter(is_ready)).is_ok() || !refused;
    if refused {
        f.api.delete("full");
    }
    Effect::new(
        1,
        usize::from(!lives) + usize::from(!recovers),
        if refused { "no Pod starts meanwhile" } else { "Pods start" },
    )
}
