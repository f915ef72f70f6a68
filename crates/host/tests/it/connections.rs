//! Listing and deleting conntrack entries.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use host::conntrack::{forget, forget_addresses, forget_udp, list, list_udp, load};
use testkit::Netns;
use testkit::process::run;

/// A namespace that tracks connections on loopback, with a redirect from one UDP port to another.
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

/// A namespace that tracks connections on loopback, those to UDP port 9 in a zone of their own.
fn zoned() -> Netns {
    let node = Netns::new().unwrap();
    run(node.command("ip").args(["link", "set", "lo", "up"]), None).unwrap();
    let rules = "table inet t { chain zone { type filter hook output priority -300; udp dport 9 ct zone set 65520; }; \
                 chain track { type filter hook output priority 0; ct state new accept; }; }";
    run(node.command("nft").arg(rules), None).unwrap();
    node
}

/// Whether the server receives a packet of the client.
fn receives(client: &UdpSocket, server: &UdpSocket) -> bool {
    client.send(b"x").unwrap();
    server.recv(&mut [0; 8]).is_ok()
}

#[test]
fn a_deleted_connection_is_translated_again() {
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
            assert!(receives(&client, &old));
            run(std::process::Command::new("nft").args(["flush", "chain", "inet", "t", "c"]), None).unwrap();
            let rule = if loopback.starts_with('[') { "ip6 daddr ::1 dnat ip6" } else { "ip daddr 127.0.0.1 dnat ip" };
            let add = format!("add rule inet t c udp dport 7 {rule} to {loopback}:1002");
            run(std::process::Command::new("nft").arg(add), None).unwrap();
            assert!(receives(&client, &old), "{loopback}: an existing connection keeps its translation");

            let (sent_to, endpoint) = (client.peer_addr().unwrap(), old.local_addr().unwrap());
            let is = |to: SocketAddr, by: SocketAddr| (to, by) == (sent_to, endpoint);
            let (meant, others): (Vec<_>, Vec<_>) =
                list_udp().unwrap().into_iter().partition(|one| is(one.sent_to, one.answered_by));
            assert_eq!((meant.len(), others.iter().filter(|one| one.sent_to == sent_to).count()), (1, 0));
            forget_udp(&others).unwrap();
            assert!(receives(&client, &old), "{loopback}: another connection was deleted");
            assert_eq!(forget_udp(&meant).unwrap(), 1);
            // An entry that has ended since it was listed does not prevent deleting the others.
            assert_eq!(forget_udp(&meant).unwrap(), 0, "{loopback}");
            assert!(receives(&client, &new), "{loopback}: it has the new endpoint");
            // Reset for the next family, which starts with the old rule.
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
fn udp_connections_in_other_zones_are_ignored() {
    let node = zoned();
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

#[test]
fn only_the_connections_of_an_address_are_deleted_in_all_zones() {
    let node = zoned();
    node.run(|| {
        let send = |from: &str, to: &str, port: u16| {
            let server = UdpSocket::bind((to, port)).unwrap();
            let client = UdpSocket::bind((from, 0)).unwrap();
            client.connect(server.local_addr().unwrap()).unwrap();
            client.send(b"x").unwrap();
            server
        };
        let _silent = [send("127.0.0.2", "127.0.0.3", 9), send("127.0.0.3", "127.0.0.4", 10)];
        let others = [send("127.0.0.5", "127.0.0.6", 9), send("::1", "::1", 10)];
        let mut bytes = [0; 8];
        let (_, client) = others[0].recv_from(&mut bytes).unwrap();
        others[0].send_to(b"x", client).unwrap();
        let of = |ip: &str| list().unwrap().into_iter().find(|one| one.initiator.to_string() == ip);
        assert!(of("127.0.0.2").is_some_and(|one| !one.is_answered && one.responder.to_string() == "127.0.0.3"));
        assert!(of("127.0.0.5").is_some_and(|one| one.timeout > 0));
        let before = list().unwrap().len();
        assert_eq!(load().unwrap().0, before as u64);
        assert_eq!(forget_addresses(&["127.0.0.3".parse().unwrap()]).unwrap(), 2);
        assert_eq!(list().unwrap().len(), before - 2);
        assert_eq!(forget_addresses(&["127.0.0.3".parse().unwrap()]).unwrap(), 0);
        assert_eq!(forget(&list().unwrap()).unwrap(), before - 2);
        assert_eq!(list().unwrap(), []);
    })
    .unwrap();
}
