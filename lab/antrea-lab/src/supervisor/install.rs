//! Installs antrea-rs in a lab with real kubelets, from the manifests for clusters, and waits until it works.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::client::{Mirror, apply};
use crate::plan::{self, Plan, SERVICE_NETS, Services};
use crate::progress::step;

const AGENT: &str = include_str!("../../../../deploy/kubernetes/antrea-agent.yml");
const OVS: &str = include_str!("../../../../deploy/kubernetes/antrea-ovs.yml");
const CONTROLLER: &str = include_str!("../../../../deploy/kubernetes/antrea-controller.yml");
const CRDS: &str = include_str!("../../../../deploy/kubernetes/antrea-crds.yml");
const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// Applies the manifests with a configuration for this lab. Returns when all Nodes are ready for Pods.
pub(super) async fn install(client: &kube::Client, plan: &Plan) -> Result<()> {
    apply(client, CRDS, |_| true).await.context("antrea-crds.yml")?;
    apply(client, OVS, |_| true).await.context("antrea-ovs.yml")?;
    apply(client, CONTROLLER, |_| true).await.context("antrea-controller.yml")?;
    apply(client, &configuration(plan).to_string(), |_| true).await.context("the ConfigMap antrea-config")?;
    apply(client, AGENT, |kind| kind != "ConfigMap").await.context("antrea-agent.yml")?;
    step("antrea-rs is being installed");
    let all = async {
        until(Api::<Deployment>::namespaced(client.clone(), "kube-system"), is_available).await?;
        until(Api::<DaemonSet>::namespaced(client.clone(), "kube-system"), is_ready).await?;
        until(Api::<Node>::all(client.clone()), |nodes| nodes.iter().all(|node| accepts_pods(node))).await
    };
    match tokio::time::timeout(READY_TIMEOUT, all).await {
        Ok(done) => done,
        Err(_) => bail!(
            "antrea-rs is not ready after {READY_TIMEOUT:?}: `kubectl -n kube-system get pods` and `kubectl -n kube-system \
             describe pod` may say why"
        ),
    }
}

/// Waits until the objects of a kind satisfy a condition.
async fn until<K>(api: Api<K>, done: impl Fn(&[&K]) -> bool) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut mirror = Mirror::default();
    while !(mirror.synced && done(&mirror.objects.values().collect::<Vec<_>>())) {
        mirror.apply(events.try_next().await);
    }
    Ok(())
}

fn is_available(deployments: &[&Deployment]) -> bool {
    deployments.iter().filter(|it| it.metadata.name.as_deref() == Some("antrea-controller")).any(|it| {
        let replicas = |it: &Deployment| it.status.as_ref()?.available_replicas;
        replicas(it).is_some_and(|available| available > 0)
    })
}

fn is_ready(sets: &[&DaemonSet]) -> bool {
    sets.iter().all(|it| {
        it.status.as_ref().is_some_and(|status| {
            status.desired_number_scheduled > 0 && status.number_ready == status.desired_number_scheduled
        })
    })
}

fn accepts_pods(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The agents' configuration, as JSON, which is valid YAML.
fn configuration(plan: &Plan) -> Value {
    let mut configuration = json!({
        "trafficEncapMode": plan.mode,
        "tunnelType": plan.tunnel,
        "serviceCIDR": SERVICE_NETS[0],
        "serviceCIDRv6": SERVICE_NETS[1],
    });
    match plan.services {
        Services::Antrea => {
            configuration["antreaProxy"] = json!({"proxyAll": true});
            // Without kube-proxy, the Service `kubernetes` works only after the agent does.
            configuration["kubeAPIServerOverride"] = json!(format!("https://{}:{}", plan::API, plan::API_PORT));
        }
        Services::Both => {}
        Services::KubeProxy => configuration["antreaProxy"] = json!({"enable": false}),
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "antrea-config", "namespace": "kube-system", "labels": {"app": "antrea"}},
        "data": {"antrea-agent.conf": format!("{configuration:#}\n")},
    })
}
