//! The configuration file, `antrea-agent.conf`: Antrea's keys, with Antrea's defaults.
//!
//! An invalid value is an error that names the file, the key, the value and what is allowed; so is a key that looks misspelt.
//! Unimplemented keys of Antrea and unknown keys are accepted and logged.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;

pub(crate) mod keys;

use ::config::{ConfigError, Reader};
use types::network::{Datapath, Mode, Tunnel};

use crate::DAEMON;

/// The parsed configuration file, with defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) ovs_bridge: String,
    /// Detected if not set.
    pub(crate) ovs_datapath_type: Option<Datapath>,
    pub(crate) ovs_run_dir: PathBuf,
    pub(crate) host_gateway: String,
    pub(crate) cni_socket: PathBuf,
    pub(crate) ipam_dir: PathBuf,
    pub(crate) host_proc_path_prefix: PathBuf,
    pub(crate) transport_interface: Option<String>,
    #[serde(rename = "transportInterfaceCIDRs")]
    pub(crate) transport_interface_cidrs: Vec<IpNet>,
    pub(crate) traffic_encap_mode: Mode,
    pub(crate) tunnel_type: Tunnel,
    /// The default of the tunnel type if not set.
    pub(crate) tunnel_port: Option<u16>,
    pub(crate) tunnel_csum: bool,
    /// Computed from the MTU of the transport interface if not set.
    #[serde(rename = "defaultMTU")]
    pub(crate) default_mtu: Option<u32>,
    #[serde(rename = "noSNAT")]
    pub(crate) no_snat: bool,
    pub(crate) antrea_proxy: Proxy,
    #[serde(rename = "serviceCIDR")]
    pub(crate) service_cidr: Ipv4Net,
    #[serde(rename = "serviceCIDRv6")]
    pub(crate) service_cidr_v6: Option<Ipv6Net>,
    pub(crate) api_port: u16,
    pub(crate) enable_prometheus_metrics: bool,
    pub(crate) event_recording: EventRecording,
    pub(crate) client_connection: Connection,
    pub(crate) antrea_client_connection: Connection,
    #[serde(rename = "kubeAPIServerOverride")]
    pub(crate) kube_api_server_override: Option<String>,
}

/// How external connections are forwarded to Pods of other Nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum LoadBalancerMode {
    Nat,
}

/// Keys of the section `antreaProxy`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Proxy {
    pub(crate) enable: bool,
    pub(crate) proxy_all: bool,
    pub(crate) node_port_addresses: Vec<IpNet>,
    pub(crate) skip_services: Vec<String>,
    #[serde(rename = "proxyLoadBalancerIPs")]
    pub(crate) proxy_load_balancer_ips: bool,
    pub(crate) service_proxy_name: Option<String>,
    pub(crate) default_load_balancer_mode: LoadBalancerMode,
    pub(crate) disable_service_health_check_server: bool,
    pub(crate) service_health_check_server_bind_address: SocketAddr,
}

/// Recording of events for `antctl replay`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventRecording {
    pub(crate) enable: bool,
    #[serde(rename = "maxSizeMB")]
    pub(crate) max_size_mb: u32,
}

/// Connection to an API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Connection {
    /// The ServiceAccount of the Pod is used if not set.
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Kernel's limit for the name of an interface.
const MAX_INTERFACE_NAME: usize = 15;
/// The minimum MTU of IPv4, and the maximum of all.
const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;

impl Config {
    /// Reads a file, or uses the defaults. Returns notes for the log, too.
    pub(crate) fn load(file: Option<&Path>) -> Result<(Self, Vec<String>), ConfigError> {
        DAEMON.load_config(&keys::SCHEMA, file, Self::ask)
    }

    /// Reads the text of a file.
    #[cfg(test)]
    pub(crate) fn read(file: &str, text: &str) -> Result<(Self, Vec<String>), ConfigError> {
        ::config::read(&keys::SCHEMA, file, text, Self::ask)
    }

    fn ask(reader: &mut Reader) -> Self {
        let config = Self {
            ovs_bridge: interface(reader, "ovsBridge").unwrap_or_else(|| "br-int".into()),
            ovs_datapath_type: reader
                .choice("ovsDatapathType", &[("system", Datapath::System), ("netdev", Datapath::Netdev)]),
            ovs_run_dir: reader.path("ovsRunDir").unwrap_or_else(|| "/var/run/openvswitch".into()),
            host_gateway: interface(reader, "hostGateway").unwrap_or_else(|| "antrea-gw0".into()),
            cni_socket: reader.path("cniSocket").unwrap_or_else(|| api::cni::DEFAULT_SOCKET.into()),
            ipam_dir: reader.path("ipamDir").unwrap_or_else(|| "/var/lib/cni/networks/antrea".into()),
            host_proc_path_prefix: reader.path("hostProcPathPrefix").unwrap_or_else(|| "/host".into()),
            transport_interface: interface(reader, "transportInterface"),
            transport_interface_cidrs: reader.list("transportInterfaceCIDRs", CIDR, |text| text.parse().ok()),
            traffic_encap_mode: encap_mode(reader),
            tunnel_type: reader.choice("tunnelType", TUNNELS).unwrap_or(Tunnel::Geneve),
            tunnel_port: reader.port("tunnelPort"),
            tunnel_csum: reader.boolean("tunnelCsum").unwrap_or(false),
            default_mtu: reader.number("defaultMTU", MTUS),
            no_snat: reader.boolean("noSNAT").unwrap_or(false),
            antrea_proxy: Proxy::ask(reader),
            service_cidr: reader
                .parsed("serviceCIDR", "an IPv4 network such as 10.96.0.0/12", |value| value.as_str()?.parse().ok())
                .unwrap_or(DEFAULT_SERVICE_CIDR),
            service_cidr_v6: reader
                .parsed("serviceCIDRv6", "an IPv6 network such as fd00:96::/112", |value| value.as_str()?.parse().ok()),
            api_port: reader.port("apiPort").unwrap_or(10350),
            enable_prometheus_metrics: reader.boolean("enablePrometheusMetrics").unwrap_or(true),
            event_recording: EventRecording {
                enable: reader.boolean("eventRecording.enable").unwrap_or(false),
                max_size_mb: reader.number("eventRecording.maxSizeMB", 1..=4096).unwrap_or(64),
            },
            client_connection: Connection { kubeconfig: reader.path("clientConnection.kubeconfig") },
            antrea_client_connection: Connection { kubeconfig: reader.path("antreaClientConnection.kubeconfig") },
            kube_api_server_override: reader.text("kubeAPIServerOverride"),
        };
        refuse_encryption(reader);
        config.check_combinations(reader);
        config
    }

    /// Reports combinations of keys that contradict each other.
    fn check_combinations(&self, reader: &mut Reader) {
        let proxy = &self.antrea_proxy;
        let encap = self.traffic_encap_mode == Mode::Encap;
        let mut problem = |is_wrong, what| reader.combination(is_wrong, what);
        problem(
            self.no_snat && self.traffic_encap_mode != Mode::NoEncap,
            "noSNAT: true needs trafficEncapMode noEncap: in other modes there is no route from outside to Pods",
        );
        problem(
            !encap && !proxy.enable,
            "antreaProxy.enable: false needs trafficEncapMode encap: packets that kube-proxy forwards would bypass egress policies",
        );
        problem(proxy.proxy_all && !proxy.enable, "antreaProxy.proxyAll: true needs antreaProxy.enable: true");
        problem(
            self.ovs_bridge == self.host_gateway,
            "hostGateway: must differ from ovsBridge, since both are names of interfaces",
        );
    }
}

impl Proxy {
    fn ask(reader: &mut Reader) -> Self {
        Self {
            // The feature gate is older than the key.
            enable: reader.boolean("antreaProxy.enable").unwrap_or(true) & reader.feature("AntreaProxy"),
            proxy_all: reader.boolean("antreaProxy.proxyAll").unwrap_or(false),
            node_port_addresses: reader.list("antreaProxy.nodePortAddresses", CIDR, |text| text.parse().ok()),
            skip_services: reader.list("antreaProxy.skipServices", "an address, or namespace/name", service),
            proxy_load_balancer_ips: reader.boolean("antreaProxy.proxyLoadBalancerIPs").unwrap_or(true),
            service_proxy_name: reader.text("antreaProxy.serviceProxyName"),
            default_load_balancer_mode: load_balancer_mode(reader),
            disable_service_health_check_server: reader
                .boolean("antreaProxy.disableServiceHealthCheckServer")
                .unwrap_or(false),
            service_health_check_server_bind_address: reader
                .parsed(
                    "antreaProxy.serviceHealthCheckServerBindAddress",
                    "an address and a port such as 0.0.0.0:10256",
                    |value| value.as_str()?.parse().ok(),
                )
                .unwrap_or(DEFAULT_HEALTH_CHECKS),
        }
    }

    /// Selects the Services to load-balance.
    pub(crate) fn serving(&self) -> proxy::Serving {
        proxy::Serving {
            proxy_name: self.service_proxy_name.clone(),
            skip: self.skip_services.iter().cloned().collect(),
            load_balancers: self.proxy_load_balancer_ips,
        }
    }
}

const CIDR: &str = "a network such as 192.168.0.0/16";
const DEFAULT_SERVICE_CIDR: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12);
const DEFAULT_HEALTH_CHECKS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 10256);
const TUNNELS: &[(&str, Tunnel)] =
    &[("geneve", Tunnel::Geneve), ("vxlan", Tunnel::Vxlan), ("gre", Tunnel::Gre), ("stt", Tunnel::Stt)];

fn encap_mode(reader: &mut Reader) -> Mode {
    let key = "trafficEncapMode";
    let modes = [
        ("encap", Some(Mode::Encap)),
        ("noEncap", Some(Mode::NoEncap)),
        ("hybrid", Some(Mode::Hybrid)),
        ("networkPolicyOnly", None),
    ];
    match reader.choice(key, &modes) {
        None => Mode::Encap,
        Some(Some(mode)) => mode,
        Some(None) => {
            let problem = "is not implemented yet; it can be encap, noEncap or hybrid";
            reader.problem(key, &"networkPolicyOnly".into(), problem);
            Mode::Encap
        }
    }
}

fn load_balancer_mode(reader: &mut Reader) -> LoadBalancerMode {
    let key = "antreaProxy.defaultLoadBalancerMode";
    if let Some(None) = reader.choice(key, &[("nat", Some(LoadBalancerMode::Nat)), ("dsr", None)]) {
        reader.problem(key, &"dsr".into(), "is not implemented yet; it can be nat");
    }
    LoadBalancerMode::Nat
}

/// Requested encryption must not be missing silently, so this is an error instead of a note.
fn refuse_encryption(reader: &mut Reader) {
    let key = "trafficEncryptionMode";
    let asked = reader.choice(key, &[("none", None), ("ipsec", Some("ipsec")), ("wireGuard", Some("wireGuard"))]);
    if let Some(Some(mode)) = asked {
        reader.problem(key, &mode.into(), "is not implemented yet; it can be none");
    }
    let key = "enableIPSecTunnel";
    if reader.boolean(key) == Some(true) {
        reader.problem(key, &true.into(), "is not implemented yet; it can be false");
    }
}

fn interface(reader: &mut Reader, key: &'static str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    let name =
        |text: &&str| text.len() <= MAX_INTERFACE_NAME && text.chars().all(allowed) && !matches!(*text, "." | "..");
    reader.parsed(key, "the name of an interface: up to 15 characters, no space, slash or colon", |value| {
        value.as_str().filter(name).map(str::to_owned)
    })
}

fn service(text: &str) -> Option<String> {
    let name = text
        .split_once('/')
        .is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'));
    (name || text.parse::<IpAddr>().is_ok()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
