//! What a container got: interfaces, addresses, routes, name servers.

use std::net::IpAddr;

use ipnet::IpNet;

/// A container's part of a network, as the result of ADD describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attachment {
    /// Interfaces, those of the Node and those in the container.
    pub interfaces: Vec<Interface>,
    /// Addresses of the container.
    pub ips: Vec<Ip>,
    /// Routes in the container.
    pub routes: Vec<Route>,
    /// Name servers.
    pub dns: Dns,
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address, as text: what other plugins of a chain make need not be Ethernet. Empty if it has none.
    pub mac: String,
    /// The path of the network namespace that it is in; empty for one of the Node.
    pub sandbox: String,
    /// Its MTU, if that is known.
    pub mtu: Option<u32>,
}

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ip {
    /// The address with the length of its subnet's prefix.
    pub address: IpNet,
    /// The subnet's gateway.
    pub gateway: Option<IpAddr>,
    /// The interface that has it: an index into [`Attachment::interfaces`].
    pub interface: Option<u32>,
}

/// A route in the container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where it goes.
    pub destination: IpNet,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// The MTU on the way.
    pub mtu: Option<u32>,
}

/// What a resolver should be told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dns {
    /// Addresses of name servers, the first to be asked first.
    pub nameservers: Vec<String>,
    /// The domain of short names.
    pub domain: String,
    /// Domains to look for short names in.
    pub search: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
}

impl Attachment {
    /// An attachment by a pair of interfaces, with the addresses (and their gateways) that the container's end has.
    pub fn of_pair(
        host: Interface,
        container: Interface,
        ips: impl IntoIterator<Item = (IpNet, Option<IpAddr>)>,
    ) -> Self {
        let ip = |(address, gateway)| Ip { address, gateway, interface: Some(1) };
        let interfaces = vec![host, container];
        Self { interfaces, ips: ips.into_iter().map(ip).collect(), ..Self::default() }
    }

    /// The interface of the Node: the first one, since plugins later in a chain append theirs.
    pub fn host(&self) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.sandbox.is_empty())
    }

    /// The interface `name` in a container.
    pub fn container(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name && !interface.sandbox.is_empty())
    }

    /// The addresses of the interface `name` in a container; where a result does not say whose an address is, it counts.
    pub fn ips_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Ip> {
        self.ips.iter().filter(move |ip| {
            let Some(index) = ip.interface else { return true };
            let interface = usize::try_from(index).ok().and_then(|index| self.interfaces.get(index));
            interface.is_some_and(|interface| interface.name == name && !interface.sandbox.is_empty())
        })
    }
}

impl Dns {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
