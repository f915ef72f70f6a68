//! Connections of UDP that are out of date.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

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
            assert_eq!(host::conntrack::forget_udp(|to, by| !is(to, by) && to == sent_to).unwrap(), 0);
            assert!(is_heard(&client, &old), "{loopback}: it is not the one that was meant");
            assert_eq!(host::conntrack::forget_udp(is).unwrap(), 1);
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
