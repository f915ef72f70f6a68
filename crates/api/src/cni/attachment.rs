//! The network of a container: interfaces, addresses, routes, name servers.

use std::net::IpAddr;

use ipnet::IpNet;

/// The network of a container, as the result of ADD describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attachment {
    /// Interfaces on the Node and in the container.
    pub interfaces: Vec<Interface>,
    /// Addresses of the container's interfaces.
    pub ips: Vec<Ip>,
    /// Routes in the container's namespace.
    pub routes: Vec<Route>,
    /// Name servers and search domains.
    pub dns: Dns,
}

/// A network interface of the Node or of the container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Name, unique within its namespace.
    pub name: String,
    /// MAC as text, because interfaces of other plugins may have none; then it is empty.
    pub mac: String,
    /// Path of the interface's network namespace; empty if it is on the Node.
    pub sandbox: String,
    /// MTU in bytes, if it is known.
    pub mtu: Option<u32>,
}

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ip {
    /// Address with the prefix length of its subnet.
    pub address: IpNet,
    /// Gateway of the subnet.
    pub gateway: Option<IpAddr>,
    /// Index into [`Attachment::interfaces`] of the interface with this address.
    pub interface: Option<u32>,
}

/// A route in the container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destination network of the route.
    pub destination: IpNet,
    /// Next hop; the network is on-link if `None`.
    pub gateway: Option<IpAddr>,
    /// Path MTU in bytes, if the route has one.
    pub mtu: Option<u32>,
}

/// Configuration of the resolver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dns {
    /// Addresses of name servers, in order of preference.
    pub nameservers: Vec<String>,
    /// Domain that is appended to short names.
    pub domain: String,
    /// Domains to search for short names.
    pub search: Vec<String>,
    /// Options of the resolver, as in `resolv.conf`.
    pub options: Vec<String>,
}

impl Attachment {
    /// An attachment by a veth, with the addresses (and their gateways) of its container side.
    pub fn of_pair(
        host: Interface,
        container: Interface,
        ips: impl IntoIterator<Item = (IpNet, Option<IpAddr>)>,
    ) -> Self {
        let ip = |(address, gateway)| Ip { address, gateway, interface: Some(1) };
        let interfaces = vec![host, container];
        Self { interfaces, ips: ips.into_iter().map(ip).collect(), ..Self::default() }
    }

    /// The interface on the Node: the first one, because later plugins of a chain append theirs.
    pub fn host(&self) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.sandbox.is_empty())
    }

    /// The interface `name` of the container.
    pub fn container(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name && !interface.sandbox.is_empty())
    }

    /// The addresses of the interface `name` in the container, including those without an interface.
    pub fn ips_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Ip> {
        self.ips.iter().filter(move |ip| {
            let Some(index) = ip.interface else { return true };
            let interface = usize::try_from(index).ok().and_then(|index| self.interfaces.get(index));
            interface.is_some_and(|interface| interface.name == name && !interface.sandbox.is_empty())
        })
    }
}

impl Dns {
    /// Whether it has no interfaces, addresses, routes and name servers.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
