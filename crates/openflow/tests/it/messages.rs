//! Messages read by `ovs-ofctl`, and exchanged with a real ovs-vswitchd.

mod client;
mod switch;

use openflow::arbitrary;
use openflow::message::Message;
use openflow::meter::Meter;
use testkit::Scratch;

/// What `ovs-ofctl ofp-parse` prints for the messages, one after the other.
fn printed(messages: &[Message]) -> String {
    let mut bytes = Vec::new();
    for message in messages {
        message.encode(9, &mut bytes).unwrap();
    }
    let dir = Scratch::new().unwrap();
    let file = dir.path().join("messages");
    std::fs::write(&file, bytes).unwrap();
    let output = std::process::Command::new("ovs-ofctl").arg("ofp-parse").arg(&file).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn ovs_ofctl_reads_every_message_as_what_it_is() {
    let messages = arbitrary::messages();
    let text = printed(&messages);
    assert!(!text.contains("***"), "not understood:\n{text}");
    // Each starts with its name; what an error and a bundle-add quote is indented or further on the line.
    let mut rest = text.as_str();
    for message in &messages {
        let line = message.line(9);
        let (start, _) = line.split_once(':').unwrap();
        let Some((_, later)) = rest.split_once(start) else {
            panic!("after {start} should come:\n{rest}");
        };
        rest = later;
    }
}

#[test]
fn ovs_ofctl_prints_the_details_that_were_meant() {
    let text = printed(&arbitrary::messages());
    for detail in [
        "OFPFMFC_OVERLAP",
        "NXBAC_BAD_CONJUNCTION",
        "version bitmap: 0x06",
        "role=primary generation_id=3",
        "dpid:0000000000000007",
        "bundle_id=0x1 type=OPEN_REQUEST flags=atomic ordered",
        "bundle_id=0x1 flags=atomic ordered",
        "ADD table:3 priority=7,ip,nw_src=10.0.0.1 actions=resubmit(,4)",
        "ADD meter=1 pktps burst stats bands=\ntype=drop rate=100 burst_size=50",
        "table_id=3 cookie=0x5 total_len=60 reg1=0x7,in_port=3 (via action) data_len=60 (unbuffered)",
        "userdata=01.02.03",
        "MOD: 3(p3): addr:aa:55:aa:55:00:01",
        "event=ADDED table=3 cookie=0",
        "event=ABBREV xid=0x7",
        "group_id=5,duration=1.500s,ref_count=1,packet_count=3,byte_count=180,bucket0:packet_count=3,byte_count=180",
        "meter:1 flow_count:0 packet_in_count:3 byte_in_count:180 duration:1.500s bands:\n0: packet_count:3 byte_count:180",
        "packet_count=3 byte_count=180 flow_count=4",
        "priority=100,ip reason=delete table_id=7 cookie:0x5 duration3s idle0 pkts1",
        "zone_id=65520",
        "format=nxt_packet_in2",
        "miss_send_len=65535",
    ] {
        assert!(text.contains(detail), "{detail}\nis not in\n{text}");
    }
}

#[test]
fn the_text_of_a_meter_is_that_of_ovs_ofctl() {
    let ovs = testkit::Ovs::start().unwrap();
    ovs.add_bridge("br0").unwrap();
    let meters: [Meter; 2] = [
        "meter=1 pktps burst stats bands=type=drop rate=100 burst_size=50".parse().unwrap(),
        "meter=controller kbps bands=type=drop rate=7 type=drop rate=9".parse().unwrap(),
    ];
    for meter in &meters {
        ovs.ofctl(["add-meter", "br0", &meter.to_string()]).unwrap();
    }
    let dump = ovs.ofctl(["dump-meters", "br0"]).unwrap();
    let (_, list) = dump.split_once('\n').unwrap();
    let dumped: Vec<Meter> = list.split("\n\n").map(|meter| meter.parse().unwrap()).collect();
    assert_eq!(dumped, meters);
}
