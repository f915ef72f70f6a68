//! Credentials of Nodes. A kubelet has a certificate of its Node. An agent has a token of the ServiceAccount of the manifest
//! for clusters.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::control_plane::ControlPlane;
use crate::node::daemon::Backoff;
use crate::plan::{Kubernetes, Node, Plan};
use crate::state::{Home, write_private};

/// RBAC rules of kubelets, for the embedded API, which has no Node authorizer.
const KUBELETS: &str = include_str!("../../manifests/kubelet.yaml");
const MANIFEST: &str = include_str!("../../../../deploy/kubernetes/antrea-agent.yml");
/// Kinds of the manifest that a lab uses; the others start the agents in a cluster.
const KINDS: [&str; 5] = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
const NAMESPACE: &str = "kube-system";
const AGENT: &str = "antrea-agent";
const KUBE_PROXY: &str = "kube-proxy";
/// ServiceAccount and RBAC rules of kube-proxy.
const KUBE_PROXY_MANIFEST: &str = include_str!("../../manifests/kube-proxy.yaml");
/// Lifetime of a token; it is renewed after half of that.
pub(super) const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Creates ServiceAccounts and RBAC rules of agents and kube-proxy, and those of kubelets for the embedded API.
pub(crate) async fn create(client: &kube::Client, plan: &Plan) -> Result<()> {
    if plan.kubernetes == Kubernetes::Embedded {
        crate::client::apply(client, KUBELETS, |_| true).await.context("the kubelets' role")?;
    }
    if plan.runs_programs() {
        crate::client::apply(client, MANIFEST, |kind| KINDS.contains(&kind)).await.context("the agents' account")?;
    }
    if plan.has_kube_proxy() {
        crate::client::apply(client, KUBE_PROXY_MANIFEST, |_| true).await.context("the account of kube-proxy")?;
    }
    Ok(())
}

/// ServiceAccounts of the programs that each Node runs.
fn accounts(plan: &Plan) -> impl Iterator<Item = &'static str> + use<> {
    let agent = plan.runs_programs().then_some(AGENT);
    agent.into_iter().chain(plan.has_kube_proxy().then_some(KUBE_PROXY))
}

/// Writes the credentials of a Node: the kubelet has certificates, other programs have kubeconfigs with tokens. Tokens are bound
/// to the Node, so they are issued after the kubelet has created the Node object.
pub(crate) async fn write_credentials(
    client: &kube::Client,
    control_plane: &ControlPlane,
    home: &Home,
    plan: &Plan,
    node: &Node,
) -> Result<()> {
    let kubelet = control_plane.kubelet(&node.name)?;
    write_private(&home.kubelet_kubeconfig(&node.name), &kubelet)?;
    let server = serde_json::to_string(&control_plane.kubelet_server(node)?)?;
    write_private(&home.kubelet_credentials(&node.name), &server)?;
    for account in accounts(plan) {
        let token = home.token_of(account, &node.name);
        write_private(&home.kubeconfig_of(account, &node.name), &kubeconfig(&kubelet, &token)?)?;
        let (client, name) = (client.clone(), node.name.clone());
        tokio::spawn(async move { renew_one(&client, &token, account, Some(&name)).await });
    }
    Ok(())
}

/// Renews the tokens of all Nodes periodically.
pub(crate) async fn renew(client: kube::Client, home: Home, plans: watch::Receiver<Plan>) {
    loop {
        tokio::time::sleep_until(Instant::now() + TOKEN_LIFE / 2).await;
        let plan = plans.borrow().clone();
        for node in &plan.nodes {
            for account in accounts(&plan) {
                renew_one(&client, &home.token_of(account, &node.name), account, Some(&node.name)).await;
            }
        }
    }
}

/// Replaces the credentials of a kubeconfig by a token file.
pub(super) fn kubeconfig(other: &str, token: &Path) -> Result<String> {
    let mut config: Value = serde_saphyr::from_str(other).context("the kubelet's kubeconfig")?;
    let user = config["users"].get_mut(0).context("the kubelet's kubeconfig has no user")?;
    user["user"] = json!({"tokenFile": token});
    Ok(format!("{config:#}\n"))
}

/// Requests a token of a ServiceAccount, bound to a Node if one is given.
pub(super) async fn request_token(client: &kube::Client, account: &str, node: Option<&str>) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let life = i64::try_from(TOKEN_LIFE.as_secs())?;
    let bound_object_ref = node.map(|node| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid: None,
    });
    let spec = TokenRequestSpec { expiration_seconds: Some(life), bound_object_ref, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let status = answer.with_context(|| format!("a token of the account {account}"))?.status;
    status.and_then(|status| status.token).context("the API gave no token")
}

/// Writes a new token, and retries until it succeeds or the Node has left.
pub(super) async fn renew_one(client: &kube::Client, path: &Path, account: &str, node: Option<&str>) {
    let mut backoff = Backoff::default();
    // The directory is removed when the Node leaves.
    while path.parent().is_some_and(Path::exists) {
        let written = request_token(client, account, node).await.and_then(|token| {
            let new = path.with_extension("new");
            write_private(&new, &token)?;
            Ok(std::fs::rename(&new, path)?)
        });
        match written {
            Ok(()) => return,
            Err(error) => tracing::debug!("cannot renew {}, retrying: {error:#}", path.display()),
        }
        tokio::time::sleep_until(Instant::now() + backoff.next()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_replaced_and_the_server_is_kept() {
        let other = "clusters:\n- name: c\n  cluster: {server: https://192.0.2.1, certificate-authority-data: Q0E=}\n\
                     users:\n- name: k\n  user: {client-certificate-data: a, client-key-data: secret}\n";
        let replaced: Value = serde_json::from_str(&kubeconfig(other, Path::new("/t")).unwrap()).unwrap();
        assert_eq!(replaced["clusters"][0]["cluster"]["server"], "https://192.0.2.1");
        assert_eq!(replaced["users"], json!([{"name": "k", "user": {"tokenFile": "/t"}}]));
    }
}
