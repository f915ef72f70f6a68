//! The plan of a lab from the options of `up`. Options that contradict each other are errors.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use testkit::ovs::in_kernel;
use types::network::{Datapath, Mode};

use super::{Options, say};
use crate::plan::{Kubelet, Kubernetes, Network, Plan, Services};
use crate::program::current_exe;

/// Archives that `make image` writes, and the directory of them beside that of this program.
const IMAGES: (&str, [&str; 2]) = ("image", ["antrea-rs.tar", "lab.tar"]);

/// The plan of a new lab.
pub(super) fn plan_of(options: &Options) -> Result<Plan> {
    let programs = programs(options)?;
    let network = network(options, &programs);
    contradiction(options, network)?;
    let datapath = options.datapath.unwrap_or(if in_kernel() { Datapath::System } else { Datapath::Netdev });
    if datapath == Datapath::System && !Path::new("/sys/module/openvswitch").exists() {
        bail!(
            "`--datapath kernel` needs the kernel module: modprobe openvswitch, or `make test-kernel`, which has a virtual machine"
        );
    }
    let Options { lab, nodes, mode, tunnel, kubernetes, kubelet, services, record, .. } = options;
    let plan = Plan::new(&lab.name, *nodes, *mode, *tunnel, *kubernetes, network);
    let plan = Plan { kubelet: *kubelet, programs, ..plan };
    let controllers = controllers(options, &plan);
    let images = if *kubelet == Kubelet::Real { images(options)? } else { Vec::new() };
    Ok(Plan { controllers, datapath, images, services: *services, record: *record, ..plan })
}

/// The directory of the programs that Nodes run.
fn programs(options: &Options) -> Result<PathBuf> {
    match &options.programs {
        Some(given) => given.canonicalize().with_context(|| format!("--programs {}", given.display())),
        None => Ok(current_exe()?.parent().context("antrea-lab is in no directory")?.to_owned()),
    }
}

fn network(options: &Options, programs: &Path) -> Network {
    let exist = || ["antrea-agent", "antrea-cni"].iter().all(|name| programs.join(name).is_file());
    match options.network {
        Some(network) => network,
        None if options.kubelet == Kubelet::Real || exist() => Network::Antrea,
        None => {
            say(format!("antrea-agent and antrea-cni are not in {}: using Debian's bridge plugin", programs.display()));
            Network::Bridge
        }
    }
}

fn contradiction(options: &Options, network: Network) -> Result<()> {
    let antrea = network == Network::Antrea;
    if antrea && options.services == Services::KubeProxy && options.mode != Mode::Encap {
        bail!(
            "`--services kube-proxy` needs `--mode encap`: in other modes, packets to Services would bypass egress policies"
        );
    }
    match options.kubelet {
        Kubelet::Real if options.kubernetes != Kubernetes::Real => bail!("`--kubelet real` needs `--kubernetes real`"),
        Kubelet::Real if options.datapath.is_some() => {
            bail!(
                "`--datapath` needs `--kubelet lab`: in a cluster, set ovsDatapathType in the ConfigMap antrea-config"
            )
        }
        Kubelet::Real if options.programs.is_some() => {
            bail!("`--programs` needs `--kubelet lab`: with `--kubelet real`, programs are in an image (`--image`)")
        }
        Kubelet::Real if network == Network::Bridge => bail!("`--network bridge` needs `--kubelet lab`"),
        Kubelet::Real if options.record => {
            bail!(
                "`--record` needs `--kubelet lab`: in a cluster, set eventRecording.enable in the ConfigMap antrea-config"
            )
        }
        Kubelet::Real if options.controllers.is_some() => {
            bail!("`--controllers` needs `--kubelet lab`: in a cluster, scale the Deployment antrea-controller")
        }
        Kubelet::Lab if !options.image.is_empty() => {
            bail!("`--image` needs `--kubelet real`: the lab's kubelet has no images")
        }
        Kubelet::Lab if network == Network::None => bail!("`--network none` needs `--kubelet real`"),
        Kubelet::Lab if !antrea && options.services != Services::Antrea => {
            bail!("`--services` is about how antrea-agent and kube-proxy share Services: it needs `--network antrea`")
        }
        Kubelet::Lab if !antrea && options.record => {
            bail!("`--record` records the events of antrea-agent: it needs `--network antrea`")
        }
        Kubelet::Lab | Kubelet::Real => Ok(()),
    }
}

fn controllers(options: &Options, plan: &Plan) -> u16 {
    match options.controllers {
        _ if !plan.runs_programs() => 0,
        Some(controllers) => controllers,
        None if plan.programs.join("antrea-controller").is_file() => plan.controllers,
        None => {
            say(format!(
                "antrea-controller is not in {}: policies are not enforced (`cargo build -p antrea-controller`)",
                plan.programs.display()
            ));
            0
        }
    }
}

fn images(options: &Options) -> Result<Vec<PathBuf>> {
    let images = if options.image.is_empty() {
        let program = current_exe()?;
        // target/debug/antrea-lab
        let target =
            program.parent().and_then(|directory| directory.parent()).context("antrea-lab is in no directory")?;
        IMAGES.1.map(|name| target.join(IMAGES.0).join(name)).to_vec()
    } else {
        options.image.clone()
    };
    let absolute = |image: PathBuf| {
        image
            .canonicalize()
            .with_context(|| format!("{}: run `make image`, or name archives with --image", image.display()))
    };
    images.into_iter().map(absolute).collect()
}
