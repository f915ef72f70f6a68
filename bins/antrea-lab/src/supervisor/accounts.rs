//! What Nodes are to the Kubernetes API. A kubelet is its Node. An agent has the account that the manifest for clusters gives
//! it, and no more.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::control_plane::{ControlPlane, write_private};
use crate::node::daemon::Pauses;
use crate::plan::{Kubernetes, Network, Node, Plan};
use crate::state::Home;

/// What kubelets may do, for an API that has no Node authoriser.
const KUBELETS: &str = include_str!("../../manifests/kubelet.yaml");
const MANIFEST: &str = include_str!("../../../../deploy/kubernetes/antrea-agent.yml");
/// What of the manifest a lab has; the rest is how a cluster starts its agents.
const KINDS: [&str; 5] = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
const NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "antrea-agent";
/// How long a token is good; it is replaced after half of that.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Makes the agents' account, and says what kubelets may do where nobody else does.
pub(crate) async fn make(client: &kube::Client, plan: &Plan) -> Result<()> {
    if plan.kubernetes == Kubernetes::Embedded {
        crate::client::apply(client, KUBELETS, |_| true).await.context("the kubelets' role")?;
    }
    if plan.network == Network::Antrea {
        crate::client::apply(client, MANIFEST, |kind| KINDS.contains(&kind)).await.context("the agents' account")?;
    }
    Ok(())
}

/// Gives a Node's kubelet a certificate, and its agent a token: each in a kubeconfig of its own.
pub(crate) async fn equip(
    client: &kube::Client,
    control_plane: &ControlPlane,
    home: &Home,
    plan: &Plan,
    node: &Node,
) -> Result<()> {
    let kubelet = control_plane.kubelet(&node.name)?;
    write_private(&home.kubelet_kubeconfig(&node.name), &kubelet)?;
    if plan.network == Network::Antrea {
        let token = home.agent_token(&node.name);
        write_private(&home.agent_kubeconfig(&node.name), &kubeconfig(&kubelet, &token)?)?;
        write_private(&token, &ask(client).await?)?;
    }
    Ok(())
}

/// Renews the tokens of the agents of all Nodes, for ever.
pub(crate) async fn renew(client: kube::Client, home: Home, plans: watch::Receiver<Plan>) {
    loop {
        tokio::time::sleep_until(Instant::now() + TOKEN_LIFE / 2).await;
        let nodes = plans.borrow().nodes.clone();
        for token in nodes.iter().map(|node| home.agent_token(&node.name)) {
            renew_one(&client, &token).await;
        }
    }
}

/// Somebody's kubeconfig with an account's token in place of what makes it theirs.
fn kubeconfig(other: &str, token: &Path) -> Result<String> {
    let mut config: Value = serde_saphyr::from_str(other).context("the kubelet's kubeconfig")?;
    let user = config["users"].get_mut(0).context("the kubelet's kubeconfig has no user")?;
    user["user"] = json!({"tokenFile": token});
    Ok(format!("{config:#}\n"))
}

async fn ask(client: &kube::Client) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let life = i64::try_from(TOKEN_LIFE.as_secs())?;
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: Some(life), ..TokenRequestSpec::default() }),
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    let status = answer.context("a token of the agents' account")?.status;
    status.and_then(|status| status.token).context("the API gave no token")
}

async fn renew_one(client: &kube::Client, path: &Path) {
    let mut pauses = Pauses::default();
    // A Node that has left needs none.
    while path.exists() {
        match ask(client).await.and_then(|token| write_private(path, &token)) {
            Ok(()) => return,
            Err(error) => tracing::warn!("{} is not renewed yet: {error:#}", path.display()),
        }
        tokio::time::sleep_until(Instant::now() + pauses.next()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_other_is_left_but_the_way_to_the_api() {
        let other = "clusters:\n- name: c\n  cluster: {server: https://192.0.2.1, certificate-authority-data: Q0E=}\n\
                     users:\n- name: k\n  user: {client-certificate-data: a, client-key-data: secret}\n";
        let told: Value = serde_json::from_str(&kubeconfig(other, Path::new("/t")).unwrap()).unwrap();
        assert_eq!(told["clusters"][0]["cluster"]["server"], "https://192.0.2.1");
        assert_eq!(told["users"], json!([{"name": "k", "user": {"tokenFile": "/t"}}]));
    }
}
