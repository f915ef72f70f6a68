//! SCTP Services and policies with the kernel's sockets, on the datapath that tracks and translates its ports.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{Backlog, SockaddrIn, bind, connect, listen, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::json;
use testkit::Netns;
use testkit::wait::{scaled, until};

use crate::agent::network;
use crate::lab::{TIMEOUT, pause};
use crate::services::labelled_pod;

/// Where the server listens, and one more port.
const PORTS: [u16; 2] = [7000, 7001];
/// How long a client waits for the answer of a server that a policy may hide.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A socket of the one-to-one style, which is used like one of TCP.
fn socket() -> nix::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "nix has no SCTP; the descriptor is new, and belongs to nothing else")]
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_SCTP) };
    let fd = nix::errno::Errno::result(fd)?;
    #[expect(unsafe_code, reason = "as above")]
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Answers each association with its own name, for as long as the test runs.
fn serve(netns: &Netns, name: &'static str, port: u16) {
    let listener = netns.run(|| -> nix::Result<TcpListener> {
        let socket = socket()?;
        bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::new(0, 0, 0, 0, port))?;
        listen(&socket, Backlog::new(16)?)?;
        Ok(socket.into())
    });
    let listener = listener.unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(name.as_bytes());
        }
    });
}

/// The name of the server that answers, if one does.
fn ask(netns: &Netns, to: SocketAddr) -> Option<String> {
    let SocketAddr::V4(to) = to else { panic!("IPv4 only") };
    let ask = || -> std::io::Result<String> {
        let (socket, limit) =
            (socket()?, TimeVal::milliseconds(scaled(ANSWER_TIMEOUT).as_millis().try_into().unwrap()));
        setsockopt(&socket, sockopt::SendTimeout, &limit)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
        connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::from(SocketAddrV4::new(*to.ip(), to.port())))?;
        let (mut stream, mut name) = (TcpStream::from(socket), [0; 64]);
        let length = stream.read(&mut name)?;
        Ok(String::from_utf8_lossy(&name[..length]).into_owned())
    };
    netns.run(ask).unwrap().ok()
}

#[test]
#[ignore = "needs SCTP sockets: `make test-kernel`"]
fn sctp_services_and_policies_work_with_real_sockets() {
    let (lab, api) = network("sctp", 2, &[]);
    let pods = [("client", "node-1"), ("other", "node-1"), ("near", "node-1"), ("far", "node-2")];
    let addresses = pods.map(|(name, node)| {
        labelled_pod(&api, name, if name == "near" || name == "far" { "server" } else { name }, &pause(node));
        name
    });
    let addresses = addresses.map(|name| api.until_ready(name).remove(0));
    let [client, other, near, far] = pods.map(|(name, node)| lab.netns(node, name));
    for port in PORTS {
        serve(&near, "near", port);
        serve(&far, "far", port);
    }
    let at = |ip: &str, port: u16| -> SocketAddr { format!("{ip}:{port}").parse().unwrap() };
    let answers = |from: &Netns, to, expected: &str| {
        let answer = || (ask(from, to)? == expected).then_some(());
        until(format_args!("{expected} at {to}"), TIMEOUT, answer).unwrap();
    };
    answers(&client, at(&addresses[2], PORTS[0]), "near");
    answers(&client, at(&addresses[3], PORTS[0]), "far");

    // Another port than that of the endpoints: DNAT changes it.
    let ports = json!([{"protocol": "SCTP", "port": 80, "targetPort": PORTS[0]}]);
    let spec = json!({"type": "NodePort", "selector": {"app": "server"}, "ports": ports});
    api.apply("v1", "Service", "sctp", json!({"spec": spec}));
    let service = crate::services::service(&api, "sctp");
    let cluster_ip = at(service["spec"]["clusterIP"].as_str().unwrap(), 80);
    for name in ["near", "far"] {
        answers(&client, cluster_ip, name);
    }
    let node_port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap().try_into().unwrap();
    let outside = lab.underlay("outside");
    for name in ["near", "far"] {
        answers(&outside, at("192.168.1.11", node_port), name);
    }

    // Only one client, at one port.
    let allowed = json!([{
        "from": [{"podSelector": {"matchLabels": {"app": "client"}}}], "ports": [{"protocol": "SCTP", "port": PORTS[0]}],
    }]);
    let policy = json!({"spec": {"podSelector": {"matchLabels": {"app": "server"}}, "ingress": allowed}});
    api.apply("networking.k8s.io/v1", "NetworkPolicy", "sctp", policy);
    let denied = || ask(&other, at(&addresses[2], PORTS[0])).is_none().then_some(());
    until("the policy", TIMEOUT, denied).unwrap();
    for address in &addresses[2..] {
        let denied = || ask(&other, at(address, PORTS[0])).is_none().then_some(());
        until("the policy on both Nodes", TIMEOUT, denied).unwrap();
        assert_eq!(ask(&client, at(address, PORTS[1])), None, "{address}");
    }
    assert_eq!(ask(&other, cluster_ip), None);
    assert_eq!(ask(&outside, at("192.168.1.11", node_port)), None);
    for name in ["near", "far"] {
        answers(&client, cluster_ip, name);
    }
}
