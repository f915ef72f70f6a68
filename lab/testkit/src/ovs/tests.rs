use super::*;

/// A broadcast frame whose payload says which packet it is.
fn frame(payload: u8) -> Vec<u8> {
    let mut frame = [[0xff; 6], [2; 6]].concat();
    frame.extend([0x88, 0xb5]);
    frame.resize(60, payload);
    frame
}

fn switch_with_two_ports() -> Ovs {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br0").unwrap();
    ovs.add_ports("br0", &[("p1", 1), ("p2", 2)]).unwrap();
    ovs
}

#[test]
fn a_packet_is_output_to_the_port_of_the_flow() {
    let ovs = switch_with_two_ports();
    ovs.ofctl(["add-flow", "br0", "in_port=1,actions=output:2"]).unwrap();
    ovs.inject("p1", &frame(7)).unwrap();
    assert_eq!(ovs.wait_captured("p2", 1).unwrap(), [frame(7)]);
    ovs.inject("p2", &frame(8)).unwrap();
    ovs.inject("p1", &frame(9)).unwrap();
    assert_eq!(ovs.wait_captured("p2", 2).unwrap(), [frame(7), frame(9)]);
    assert!(ovs.captured("p1").unwrap().is_empty());
}

#[test]
fn a_command_gives_the_same_with_and_without_a_process_of_its_own() {
    let ovs = switch_with_two_ports();
    ovs.add_port("br0", "p3", 3).unwrap();
    assert_eq!(ovs.control("dpif/show", &[]).unwrap(), ovs.appctl(["dpif/show"]).unwrap());
    ovs.control("no/such", &["command"]).unwrap_err();
}

#[test]
fn two_sandboxes_are_independent() {
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(switch_with_two_ports);
        let two = scope.spawn(switch_with_two_ports);
        (one.join().unwrap(), two.join().unwrap())
    });
    one.ofctl(["add-flow", "br0", "in_port=1,actions=output:2"]).unwrap();
    two.ofctl(["add-flow", "br0", "in_port=2,actions=output:1"]).unwrap();
    for ovs in [&one, &two] {
        ovs.inject("p1", &frame(1)).unwrap();
        ovs.inject("p2", &frame(2)).unwrap();
    }
    assert_eq!(one.wait_captured("p2", 1).unwrap(), [frame(1)]);
    assert_eq!(two.wait_captured("p1", 1).unwrap(), [frame(2)]);
    assert!(one.captured("p1").unwrap().is_empty());
    assert!(two.captured("p2").unwrap().is_empty());
}

#[test]
fn a_restarted_switch_has_its_ports_but_not_its_flows() {
    let ovs = switch_with_two_ports();
    let before = ovs.vswitchd_pid().unwrap();
    ovs.ofctl_stdin(["add-flows", "br0", "-"], "in_port=1,actions=output:2\nin_port=2,actions=drop\n").unwrap();
    assert_eq!(ovs.ofctl(["dump-flows", "br0"]).unwrap().matches("actions=").count(), 2);

    ovs.kill_vswitchd().unwrap();
    ovs.vswitchd_pid().unwrap_err();
    ovs.ofctl(["dump-flows", "br0"]).unwrap_err();
    ovs.start_vswitchd().unwrap();
    assert_ne!(ovs.vswitchd_pid().unwrap(), before);
    assert_eq!(ovs.ofctl(["dump-flows", "br0"]).unwrap().matches("actions=").count(), 0);
    ovs.ofctl(["add-flow", "br0", "in_port=1,actions=output:2"]).unwrap();
    ovs.inject("p1", &frame(3)).unwrap();
    assert_eq!(ovs.wait_captured("p2", 1).unwrap(), [frame(3)]);
}

#[test]
fn a_restarted_database_server_has_its_rows() {
    let ovs = switch_with_two_ports();
    ovs.kill_ovsdb().unwrap();
    ovs.vsctl(["--no-wait", "list-br"]).unwrap_err();
    ovs.start_ovsdb().unwrap();
    assert_eq!(ovs.vsctl(["list-ports", "br0"]).unwrap(), "p1\np2\n");
    // The switch has survived, and reconnects to the new server.
    ovs.add_port("br0", "p3", 3).unwrap();
    assert!(ovs.vswitchd_rss().unwrap() > 1 << 20);
}

#[test]
fn the_error_of_a_failed_tool_has_the_command_and_its_message() {
    let ovs = Ovs::start().unwrap();
    let error = ovs.ofctl_stdin(["add-flows", "nobridge", "-"], "actions=drop\n").unwrap_err().to_string();
    assert!(error.starts_with("`ovs-ofctl -O OpenFlow15 --timeout=30 add-flows nobridge -` failed"), "{error}");
    assert!(error.contains("nobridge is not a bridge"), "{error}");
    let error = ovs.appctl(["no-such-command"]).unwrap_err().to_string();
    assert!(error.contains("\"no-such-command\" is not a valid command"), "{error}");
    let error = ovs.inject("nowhere", &frame(0)).unwrap_err();
    assert!(format!("{error:#}").contains("no such dummy netdev"), "{error:#}");
    let error = ovs.captured("nowhere").unwrap_err().to_string();
    assert_eq!(error, "nowhere is no dummy port of this sandbox");
    let error = ovs.add_port("nobridge", "p1", 1).unwrap_err().to_string();
    assert!(error.contains("no bridge named nobridge"), "{error}");
}

#[test]
fn a_daemon_that_does_not_start_shows_the_end_of_its_log() {
    let ovs = Ovs::start().unwrap();
    ovs.kill_vswitchd().unwrap();
    ovs.kill_ovsdb().unwrap();
    std::fs::write(ovs.dir().join("conf.db"), "not a database").unwrap();
    let error = ovs.start_ovsdb().unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("ovsdb-server ended with exit status: 1"), "{error}");
    assert!(error.contains("end of ovsdb-server.out"), "{error}");
    assert!(error.contains("conf.db"), "{error}");
}
