//! `demo`: deploys a small shop, and shows its Pods and their connectivity.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use testkit::wait::scaled;

use super::{call, check, say};
use crate::check::table;
use crate::cli::LabName;
use crate::client::{self, Mirror};
use crate::plan::{Kubelet, Network};
use crate::state::Home;

const SHOP: &str = include_str!("../../demo/shop.yaml");
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Deploys the shop and prints its connectivity.
pub(crate) async fn run(lab_name: LabName) -> Result<()> {
    let home = Home::of(&lab_name.name);
    let lab = home.alive()?;
    let client = client::connect(&home.kubeconfig()).await?;
    say("deploying the shop: front ends, back ends, a database");
    client::apply(&client, SHOP, |_| true).await.context("the shop")?;
    until_ready(&client).await?;
    say("testing connectivity with real packets");
    let matrix = check::measure(&home, &lab).await?;
    say("");
    super::status::run(lab_name.clone()).await?;
    say("");
    say(table::draw(&matrix));
    say("");
    let target = if lab.plan.network == Network::Bridge {
        say("Debian's bridge plugin supports neither Services nor policies, so they do not work here.");
        let address = database_address(&client).await.unwrap_or_else(|| "ADDRESS".to_owned());
        format!("{address}:5432")
    } else {
        say(
            "The shop's policies allow only front ends to back ends, and back ends to the database: other Pods get no answer.",
        );
        "backend:8080".to_owned()
    };
    say("");
    say("Try next:");
    if lab.plan.kubelet == Kubelet::Real {
        let kubectl = call("kubectl", &lab_name.name);
        say(format!("  {kubectl} -- --namespace shop logs deployment/frontend"));
        say(format!("  {kubectl} -- --namespace kube-system exec daemonset/antrea-ovs -- ovs-ofctl dump-flows br-int"));
    } else {
        say(format!("  {} frontend -- curl -s http://{target}/clientip", call("exec", &lab_name.name)));
        say(format!("  {} node-1 -- ovs-ofctl -O OpenFlow15 dump-flows br-int", call("node", &lab_name.name)));
    }
    say(format!("  {} --svg matrix.svg", call("check", &lab_name.name)));
    say(format!("and, to end the lab: {}", call("down", &lab_name.name)));
    Ok(())
}

async fn database_address(client: &kube::Client) -> Option<String> {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "shop");
    let found = pods.list(&ListParams::default().labels("app=database")).await.ok()?;
    found.items.first()?.status.as_ref()?.pod_ip.clone()
}

/// Waits until all replicas of all Deployments are ready, and prints the missing ones.
async fn until_ready(client: &kube::Client) -> Result<()> {
    let mut events =
        watcher(Api::<Deployment>::all(client.clone()), watcher::Config::default()).default_backoff().boxed();
    let (mut deployments, mut waiting) = (Mirror::<Deployment>::default(), String::new());
    let ready = async {
        loop {
            deployments.apply(events.try_next().await);
            let missing: Vec<_> = deployments.objects.values().filter_map(missing).collect();
            if deployments.synced && missing.is_empty() {
                return;
            }
            let missing = missing.join(", ");
            if deployments.synced && waiting != missing {
                say(format!("  waiting for {missing}"));
                waiting = missing;
            }
        }
    };
    if tokio::time::timeout(scaled(READY_TIMEOUT), ready).await.is_err() {
        bail!("Deployments not ready after {READY_TIMEOUT:?}: {waiting}; see `antrea-lab status`");
    }
    Ok(())
}

fn missing(deployment: &Deployment) -> Option<String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    (ready < wanted).then(|| format!("{name} ({ready} of {wanted})"))
}
