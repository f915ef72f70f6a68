//! An agent that attaches Pods with veths to its own namespace: no switch, no policies, one address.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use api::cni::{Attachment, AttachmentId, Call, Code, Error, Handler, Interface, Listener, Release};
use testkit::{Netns, Scratch};
use tokio::runtime::Runtime;

pub(crate) const ADDRESS: &str = "10.10.0.4/24";
pub(crate) const GATEWAY: &str = "10.10.0.1";
const PORT: &str = "web-0-8ec607";

/// Serves CNI calls until it is dropped.
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    pub(crate) calls: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
    _directory: Scratch,
}

impl Agent {
    /// Starts an agent that attaches Pods to `node`; if `None`, it only returns results.
    pub(crate) fn start(node: Option<Netns>) -> Self {
        let directory = Scratch::new().unwrap();
        let socket = directory.path().join("cni.sock");
        let runtime = Runtime::new().unwrap();
        let calls = Arc::default();
        let wires = VethHandler { node, calls: Arc::clone(&calls) };
        let listener = {
            let _inside = runtime.enter();
            Listener::bind(&socket).unwrap()
        };
        runtime.spawn(listener.serve(wires, std::future::pending()));
        Self { socket, calls, _runtime: runtime, _directory: directory }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

struct VethHandler {
    node: Option<Netns>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl VethHandler {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

fn attach(node: &Netns, call: &Call) -> anyhow::Result<()> {
    let netns = call.netns.as_str();
    let inside = |args: &[&str]| {
        let mut command = node.command("nsenter");
        testkit::process::run(command.arg(format!("--net={netns}")).arg("ip").args(args), None).map(drop)
    };
    node.ip(["link", "add", PORT, "type", "veth", "peer", "name", call.id.ifname.as_str(), "netns", netns])?;
    node.add_address(PORT, &format!("{GATEWAY}/24"))?;
    node.link_up(PORT)?;
    inside(&["addr", "add", ADDRESS, "dev", call.id.ifname.as_str()])?;
    inside(&["link", "set", call.id.ifname.as_str(), "up"])?;
    inside(&["route", "add", "default", "via", GATEWAY])
}

impl Handler for VethHandler {
    async fn add(&self, call: &Call) -> Result<Attachment, Error> {
        self.note(format!("ADD {} {} {:?}", call.id, call.pod, call.mtu));
        if call.id.container.as_str() == "full" {
            return Err(
                Error::new(Code::Ipam, "no address is left").with_details("10.10.0.0/24 has 254, and all are in use")
            );
        }
        if let Some(node) = &self.node {
            attach(node, call).map_err(|error| Error::new(Code::Interface, format!("{error:#}")))?;
        }
        let host = Interface { name: PORT.into(), mac: "0a:00:00:00:00:01".into(), ..Interface::default() };
        let container = Interface {
            name: call.id.ifname.to_string(),
            mac: "0a:00:00:00:00:02".into(),
            sandbox: call.netns.clone(),
            mtu: call.mtu.or(Some(1450)),
        };
        let ip = (ADDRESS.parse().unwrap(), Some(GATEWAY.parse().unwrap()));
        Ok(Attachment::of_pair(host, container, [ip]))
    }

    async fn del(&self, release: &Release) -> Result<(), Error> {
        self.note(format!("DEL {} {:?}", release.id, release.netns));
        if let Some(node) = &self.node {
            // The interface may be gone already.
            let _ = node.ip(["link", "del", PORT]);
        }
        Ok(())
    }

    async fn check(&self, call: &Call, expected: &Attachment) -> Result<(), Error> {
        let ips: Vec<_> = expected.ips_of(call.id.ifname.as_str()).map(|ip| ip.address.to_string()).collect();
        let host = expected.host().map(|host| host.name.as_str()).unwrap_or_default();
        self.note(format!("CHECK {} {host} {}", call.id, ips.join(" ")));
        if ips == [ADDRESS] { Ok(()) } else { Err(Error::new(Code::Check, "eth0 has other addresses")) }
    }

    async fn status(&self) -> Result<(), Error> {
        self.note("STATUS".into());
        Ok(())
    }

    async fn gc(&self, valid: &[AttachmentId]) -> Result<(), Error> {
        let valid: Vec<_> = valid.iter().map(ToString::to_string).collect();
        self.note(format!("GC but {}", valid.join(" ")));
        Ok(())
    }
}
