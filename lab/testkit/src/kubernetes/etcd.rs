//! The store behind the API server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::network::Network;
use super::program;
use crate::wait::TIMEOUT;

#[derive(Debug)]
pub(super) struct Etcd {
    daemon: Daemon,
    network: Network,
    client: SocketAddr,
}

impl Etcd {
    pub(super) fn start(dir: &Path, network: &Network) -> Result<Self> {
        let loopback = Ipv4Addr::LOCALHOST.into();
        let (client, peer) = (network.free_address(loopback)?, network.free_address(loopback)?);
        let mut command = network.command(program("etcd"));
        command.arg("--data-dir").arg(dir.join("etcd"));
        command.args(["--log-level=warn", "--name=test"]);
        // What a test stores need not survive a power cut.
        command.arg("--unsafe-no-fsync");
        for flag in ["listen-client-urls", "advertise-client-urls"] {
            command.arg(format!("--{flag}=http://{client}"));
        }
        for flag in ["listen-peer-urls", "initial-advertise-peer-urls"] {
            command.arg(format!("--{flag}=http://{peer}"));
        }
        command.arg(format!("--initial-cluster=test=http://{peer}"));
        let ready = || network.is_listening(client) && network.run(|| revision(client)).is_ok();
        let daemon = Daemon::start("etcd", command, dir, TIMEOUT, ready)?;
        Ok(Self { daemon, network: network.clone(), client })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    pub(super) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Forgets all revisions but the current one.
    pub(super) fn compact(&self) -> Result<()> {
        self.network.run(|| {
            let revision = revision(self.client)?;
            post(self.client, "/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).map(drop)
        })
    }
}

fn revision(etcd: SocketAddr) -> Result<String> {
    // A key that does not exist: only the header of the response is needed.
    let answer = post(etcd, "/v3/kv/range", &json!({ "key": "AA==" }))?;
    answer["header"]["revision"].as_str().map(str::to_owned).context("etcd's answer has no revision")
}

/// One request to etcd's JSON gateway. HTTP/1.0, so the answer ends with the connection.
fn post(etcd: SocketAddr, path: &str, body: &Value) -> Result<Value> {
    let mut stream = TcpStream::connect(etcd)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = body.to_string();
    write!(stream, "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("etcd's answer has no body")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "etcd refuses {path}: {body}");
    Ok(serde_json::from_str(body)?)
}
