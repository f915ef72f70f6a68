//! Network namespaces without a name, which the kernel frees with their last user.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns, unshare};

use crate::process::run;

/// A network namespace. It lives as long as this value, its clones, or a process inside; needs root.
#[derive(Clone, Debug)]
pub struct Netns(Arc<File>);

impl Netns {
    /// Creates an empty namespace, with the loopback interface up.
    pub fn new() -> Result<Self> {
        // The thread enters the new namespace, returns a file of it, and ends.
        let make = || -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        };
        let file = in_a_thread(make).context("cannot make a network namespace (are we root?)")?;
        let netns = Self(Arc::new(file));
        netns.link_up("lo")?;
        Ok(netns)
    }

    /// The namespace that a path such as `/proc/1/ns/net` leads to.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("no network namespace at {}", path.display()))?;
        Ok(Self(Arc::new(file)))
    }

    /// A command that will run inside. To leave it running in the background, give it to [`crate::Process::spawn`].
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.0);
        let enter = move || Ok(setns(&*namespace, CloneFlags::CLONE_NEWNET)?);
        #[expect(unsafe_code, reason = "the child enters between fork and exec; the closure makes one system call")]
        unsafe {
            command.pre_exec(enter);
        }
        command
    }

    /// Runs `work` in a thread inside. Sockets made there stay in the namespace wherever they are used later.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        in_a_thread(|| {
            setns(&*self.0, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
    }

    /// A path for as long as this value lives, for `ip link ... netns PATH` and the like.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd()).into()
    }

    /// Runs `ip` inside and returns what it prints.
    pub fn ip<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        run(self.command("ip").args(args), None)
    }

    /// Runs lines of `ip -batch`, up to the first that fails.
    pub fn ip_batch(&self, lines: &[String]) -> Result<()> {
        run(self.command("ip").args(["-batch", "-"]), Some(&lines.join("\n"))).map(drop)
    }

    /// Sets kernel parameters of this namespace, such as `net.ipv4.ip_forward`.
    pub fn sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| sysctls(settings))?
    }

    /// Sets a link up.
    pub fn link_up(&self, link: &str) -> Result<()> {
        self.ip(["link", "set", "dev", link, "up"]).map(drop)
    }

    /// Gives `link` the address `address`, with its prefix length; it can be used at once.
    pub fn add_address(&self, link: &str, address: &str) -> Result<()> {
        // Duplicate address detection would keep an IPv6 address from being used for a second or two.
        let flags: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        self.ip(["addr", "add", address, "dev", link].iter().chain(flags)).map(drop)
    }

    /// Turns all offloads of `link` off: the connection tracking of OVS takes a missing checksum for a wrong one.
    pub fn offloads_off(&self, link: &str) -> Result<()> {
        let offloads = ["tx", "sg", "tso", "gso", "gro", "rx"].into_iter().flat_map(|offload| [offload, "off"]);
        run(self.command("ethtool").args(["-K", link]).args(offloads), None).map(drop)
    }

    /// Drops all packets that arrive at `link` before the kernel's stack; packet sockets (OVS, tcpdump) still receive them.
    pub fn drop_ingress(&self, link: &str) -> Result<()> {
        let hook = format!("type filter hook ingress device \"{link}\" priority -500; policy drop;");
        let rules = format!("add table netdev testkit; add chain netdev testkit in-{link} {{ {hook} }}");
        run(self.command("nft").args(["-f", "-"]), Some(&rules)).map(drop)
    }
}

/// Sets kernel parameters in the network namespace of this thread.
pub fn sysctls(settings: &[(&str, &str)]) -> Result<()> {
    settings.iter().try_for_each(|(name, value)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::write(&path, value).with_context(|| format!("cannot set {name}={value}"))
    })
}

/// Creates a veth pair: `name_a` in the namespace `a`, `name_b` in `b`; both ends are down.
pub fn veth_pair(a: &Netns, name_a: &str, b: &Netns, name_b: &str) -> Result<()> {
    let other = b.path();
    let args = ["link", "add", "name", name_a, "type", "veth", "peer", "name", name_b, "netns"];
    a.ip(args.into_iter().map(OsStr::new).chain([other.as_os_str()])).map(drop)
}

/// Runs `work` in a new thread, so that the namespace of other threads does not change; a panic continues in the caller.
fn in_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::wait::{TIMEOUT, until};

    #[test]
    fn commands_and_closures_run_inside_and_nothing_else_does() {
        let netns = Netns::new().unwrap();
        netns.add_address("lo", "192.0.2.1/32").unwrap();
        netns.add_address("lo", "2001:db8::1/128").unwrap();
        let listener = netns.run(|| TcpListener::bind("192.0.2.1:80")).unwrap().unwrap();
        netns.run(|| TcpListener::bind("[2001:db8::1]:80")).unwrap().unwrap();
        TcpListener::bind("192.0.2.1:80").unwrap_err();
        // The socket keeps its namespace outside of it.
        let client = netns.run(|| TcpStream::connect("192.0.2.1:80")).unwrap().unwrap();
        assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
    }

    #[test]
    #[should_panic(expected = "seen outside")]
    fn a_panic_inside_is_seen_outside() {
        let _ = Netns::new().unwrap().run(|| panic!("seen outside"));
    }

    #[test]
    fn a_dropped_namespace_is_gone_with_its_links() {
        let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
        veth_pair(&a, "to-b", &b, "to-a").unwrap();
        assert!(b.ip(["link"]).unwrap().contains("to-a@"));
        drop(b);
        let gone = || (!a.ip(["link"]).unwrap().contains("to-b")).then_some(());
        until("the removal of the other end of the veth pair", TIMEOUT, gone).unwrap();
    }

    #[test]
    fn the_kernel_does_not_answer_on_a_link_whose_ingress_is_dropped() {
        let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
        veth_pair(&a, "to-b", &b, "to-a").unwrap();
        for (netns, link, address) in [(&a, "to-b", "192.0.2.1/24"), (&b, "to-a", "192.0.2.2/24")] {
            netns.add_address(link, address).unwrap();
            netns.offloads_off(link).unwrap();
            netns.link_up(link).unwrap();
        }
        let ping = || run(a.command("ping").args(["-n", "-c", "1", "-W", "0.3", "192.0.2.2"]), None);
        until("an answer", TIMEOUT, || ping().ok()).unwrap();
        b.drop_ingress("to-a").unwrap();
        ping().unwrap_err();
    }
}
