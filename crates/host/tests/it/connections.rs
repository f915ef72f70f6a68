//! Connections of UDP that are out of date.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use host::conntrack::{forget_udp, list_udp};
use testkit::Netns;
use testkit::process::run;

/// A namespace whose loopback tracks connections, and answers at one port what is sent to another.
fn tracked(to: u16) -> Netns {
    let node = Netns::new().unwrap();
    run(node.command("ip").args(["link", "set", "lo", "up"]), None).unwrap();
    let rules = format!(
        "table inet t {{ chain c {{ type nat hook output priority -100; udp dport 7 ip daddr 127.0.0.1 dnat ip to 127.0.0.1:{to}; \
         udp dport 7 ip6 daddr ::1 dnat ip6 to [::1]:{to}; }}; }}"
    );
    run(node.command("nft").arg(rules), None).unwrap();
    node
}

/// Whether the socket is heard by the server.
fn is_heard(client: &UdpSocket, server: &UdpSocket) -> bool {
    client.send(b"x").unwrap();
    server.recv(&mut [0; 8]).is_ok()
}

#[test]
fn a_connection_that_is_forgotten_is_translated_anew() {
    let node = tracked(1001);
    node.run(|| {
        for loopback in ["127.0.0.1", "[::1]"] {
            let bind = |port: u16| {
                let socket = UdpSocket::bind(format!("{loopback}:{port}")).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                socket
            };
            let (old, new, client) = (bind(1001), bind(1002), bind(0));
            client.connect(format!("{loopback}:7")).unwrap();
            assert!(is_heard(&client, &old));
            run(std::process::Command::new("nft").args(["flush", "chain", "inet", "t", "c"]), None).unwrap();
            let rule = if loopback.starts_with('[') { "ip6 daddr ::1 dnat ip6" } else { "ip daddr 127.0.0.1 dnat ip" };
            let add = format!("add rule inet t c udp dport 7 {rule} to {loopback}:1002");
            run(std::process::Command::new("nft").arg(add), None).unwrap();
            assert!(is_heard(&client, &old), "{loopback}: a connection stays as it began");

            let (sent_to, endpoint) = (client.peer_addr().unwrap(), old.local_addr().unwrap());
            let is = |to: SocketAddr, by: SocketAddr| (to, by) == (sent_to, endpoint);
            let (meant, others): (Vec<_>, Vec<_>) =
                list_udp().unwrap().into_iter().partition(|one| is(one.sent_to, one.answered_by));
            assert_eq!((meant.len(), others.iter().filter(|one| one.sent_to == sent_to).count()), (1, 0));
            forget_udp(&others).unwrap();
            assert!(is_heard(&client, &old), "{loopback}: it is not the one that was meant");
            assert_eq!(forget_udp(&meant).unwrap(), 1);
            // What has ended since it was listed keeps nobody from the others.
            assert_eq!(forget_udp(&meant).unwrap(), 0, "{loopback}");
            assert!(is_heard(&client, &new), "{loopback}: its endpoint is another one now");
            // For the next family, which begins with the old rule.
            run(std::process::Command::new("nft").args(["flush", "chain", "inet", "t", "c"]), None).unwrap();
            run(
                std::process::Command::new("nft")
                    .arg("add rule inet t c udp dport 7 ip6 daddr ::1 dnat ip6 to [::1]:1001"),
                None,
            )
            .unwrap();
        }
    })
    .unwrap();
}

#[test]
fn connections_that_others_track_in_zones_of_their_own_are_left_alone() {
    let node = Netns::new().unwrap();
    run(node.command("ip").args(["link", "set", "lo", "up"]), None).unwrap();
    let rules = "table inet t { chain zone { type filter hook output priority -300; udp dport 9 ct zone set 65520; }; \
                 chain track { type filter hook output priority 0; ct state new accept; }; }";
    run(node.command("nft").arg(rules), None).unwrap();
    node.run(|| {
        let listed = |port: u16| {
            let server = UdpSocket::bind(("127.0.0.1", port)).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(server.local_addr().unwrap()).unwrap();
            client.send(b"x").unwrap();
            list_udp().unwrap().iter().filter(|one| one.sent_to.port() == port).count()
        };
        assert_eq!((listed(9), listed(10)), (0, 1));
    })
    .unwrap();
}
