//! Connects the Pods of a Node.

mod bridge;
mod cni;
mod engine;
mod ports;
mod run;
mod settings;
mod sources;
mod upkeep;

fn main() -> anyhow::Result<()> {
    let var = |n: &str| std::env::var(n).unwrap_or_default();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let settings = settings::Settings {
        node: var("NODE_NAME"),
        kubeconfig: Some(var("KUBECONFIG").into()),
        api_server: None,
        ovs_run_dir: var("OVS_RUNDIR").into(),
        bridge: "br-int".into(),
        gateway: "antrea-gw0".into(),
        datapath: None,
        mode: pipeline::model::Mode::Encap,
        tunnel: settings::TunnelKind::Geneve,
        tunnel_port: None,
        tunnel_checksum: false,
        mtu: None,
        no_snat: false,
        features: pipeline::model::Features::default(),
        node_port_addresses: vec![],
        service_cidrs: vec![],
        transport_interface: None,
        cni_socket: var("CNI_SOCKET").into(),
        ipam_dir: var("IPAM_DIR").into(),
        api_port: 0,
    };
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(16).build()?;
    rt.block_on(run::run(settings))
}
