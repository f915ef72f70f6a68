//! Bridges and ports of a sandbox, and the packets that go through dummy ports.

use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;

use anyhow::{Context, Result, ensure};

use super::tap::Tap;
use super::{Datapath, Ovs, pcap, rpc};
use crate::wait::{TIMEOUT, until};

impl Ovs {
    /// Adds a bridge that forwards nothing without flows (`fail_mode=secure`) and speaks OpenFlow 1.0 and 1.5.
    pub fn add_bridge(&self, name: &str) -> Result<()> {
        let datapath = format!("datapath_type={}", self.datapath().bridge_type());
        let settings = [&datapath, "fail_mode=secure", "protocols=OpenFlow10,OpenFlow15"];
        self.vsctl(["add-br", name, "--", "set", "bridge", name].into_iter().chain(settings)).map(drop)
    }

    /// Adds a dummy port with the OpenFlow number `ofport`; all that the switch sends out of it is captured.
    pub fn add_port(&self, bridge: &str, name: &str, ofport: u16) -> Result<()> {
        let settings = self.test_port(name)?;
        self.add_interface(bridge, name, ofport, &settings.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Adds dummy ports as [`Ovs::add_port`] does, all at once, which takes hardly longer than one.
    pub fn add_ports(&self, bridge: &str, ports: &[(&str, u16)]) -> Result<()> {
        let mut args = Vec::new();
        for (name, ofport) in ports {
            let number = format!("ofport_request={ofport}");
            let add = ["--", "add-port", bridge, name, "--", "set", "interface", name, &number];
            args.extend(add.map(ToOwned::to_owned));
            args.extend(self.test_port(name)?);
        }
        self.vsctl(args)?;
        let ask = ports.iter().flat_map(|(name, _)| ["--", "get", "interface", name, "ofport"]);
        let (got, wanted) = (self.vsctl(ask)?, ports.iter().map(|(_, ofport)| format!("{ofport}\n")));
        ensure!(got == wanted.collect::<String>(), "the ports {ports:?} got the numbers {got}");
        Ok(())
    }

    /// Makes the link `name` in the daemons' namespace a port with the OpenFlow number `ofport`, and sets it up.
    ///
    /// The userspace datapath reads copies of the packets. So ingress of the kernel's stack is dropped, or both would reply.
    pub fn attach(&self, bridge: &str, name: &str, ofport: u16) -> Result<()> {
        let netns = self.netns().context("the dummy datapath has no real ports: use Ovs::start_in")?;
        if self.datapath() == Datapath::Userspace {
            netns.drop_ingress(name)?;
        }
        netns.ip(["link", "set", "dev", name, "addrgenmode", "none"])?;
        netns.link_up(name)?;
        self.add_interface(bridge, name, ofport, &[])
    }

    /// Sends `packet`, an Ethernet frame, into a dummy port. The switch may process it after this returns.
    ///
    /// Packets of one port stay in order: one was dropped if the next one has been output.
    pub fn inject(&self, port: &str, packet: &[u8]) -> Result<()> {
        if self.datapath() == Datapath::Kernel {
            return self.with_tap(port, |tap| tap.send(packet));
        }
        let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        rpc::call(&self.vswitchd_ctl()?, "netdev-dummy/receive", &[port, &hex]).map(drop)
    }

    /// The packets which the switch has ever sent out of the dummy port of that name, oldest first.
    pub fn captured(&self, port: &str) -> Result<Vec<Vec<u8>>> {
        if self.datapath() == Datapath::Kernel {
            return self.with_tap(port, Tap::received);
        }
        let file = fs::read(self.capture(port)).with_context(|| format!("{port} is no dummy port of this sandbox"))?;
        pcap::packets(&file).with_context(|| format!("the capture of {port}"))
    }

    /// Waits until [`Ovs::captured`] has at least `n` packets, and returns them.
    pub fn wait_captured(&self, port: &str, n: usize) -> Result<Vec<Vec<u8>>> {
        let mut seen = 0;
        let enough = || {
            let packets = self.captured(port);
            seen = packets.as_ref().map_or(0, Vec::len);
            (packets.is_err() || seen >= n).then_some(packets)
        };
        let packets = until(format_args!("{n} packets out of {port}"), TIMEOUT, enough).flatten();
        packets.with_context(|| format!("{seen} packets have come out of {port}"))
    }

    /// Adds a port whose interface has `settings`, and makes sure that it works and got the number it asked for.
    pub(super) fn add_interface(&self, bridge: &str, name: &str, ofport: u16, settings: &[&str]) -> Result<()> {
        let number = format!("ofport_request={ofport}");
        let args = ["add-port", bridge, name, "--", "set", "interface", name, &number];
        self.vsctl(args.iter().chain(settings))?;
        let got = self.vsctl(["get", "interface", name, "ofport", "error"])?;
        ensure!(got == format!("{ofport}\n[]\n"), "port {name} asked for number {ofport}; ofport and error are {got}");
        Ok(())
    }

    /// Settings of the interface for a port whose packets a test sends and receives; creates what it needs.
    fn test_port(&self, name: &str) -> Result<Vec<String>> {
        match (self.datapath(), self.netns()) {
            (Datapath::Kernel, Some(netns)) => {
                self.taps.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), Tap::create(netns, name)?);
                Ok(Vec::new())
            }
            _ => Ok(vec!["type=dummy".into(), format!("options:tx_pcap={}", self.capture(name).display())]),
        }
    }

    fn with_tap<T>(&self, port: &str, use_it: impl FnOnce(&mut Tap) -> Result<T>) -> Result<T> {
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let tap = taps.get_mut(port).with_context(|| format!("{port} is no tap of this sandbox"))?;
        use_it(tap).with_context(|| format!("the tap {port}"))
    }

    fn capture(&self, port: &str) -> PathBuf {
        self.home.file(&format!("{port}.tx.pcap"))
    }
}
