//! What the Nodes' agents are to the Kubernetes API: the account that the manifest for clusters gives them, and no more.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::control_plane::write_private;
use crate::node::daemon::Pauses;
use crate::plan::Plan;
use crate::state::Home;

const MANIFEST: &str = include_str!("../../../../deploy/kubernetes/antrea-agent.yml");
/// What of the manifest a lab has; the rest is how a cluster starts its agents.
const KINDS: [&str; 5] = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
const NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "antrea-agent";
/// How long a token is good; it is replaced after half of that.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Makes the agents' account, gives every Node a kubeconfig with a token that is bound to it, and renews the tokens, for ever. The first
/// one comes when the Node has made itself known.
pub(crate) async fn give(client: &kube::Client, home: &Home, plan: &Plan) -> Result<()> {
    crate::client::apply(client, MANIFEST, |kind| KINDS.contains(&kind)).await.context("the agents' account")?;
    let ours = std::fs::read_to_string(home.node_kubeconfig())?;
    for node in &plan.nodes {
        std::fs::create_dir_all(home.node(&node.name))?;
        let token = home.agent_token(&node.name);
        write_private(&home.agent_kubeconfig(&node.name), &kubeconfig(&ours, &token)?)?;
        let (client, name) = (client.clone(), node.name.clone());
        tokio::spawn(async move { renew(&client, &token, ACCOUNT, Some(&name)).await });
    }
    let (client, home, plan) = (client.clone(), home.clone(), plan.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep_until(Instant::now() + TOKEN_LIFE / 2).await;
            for node in &plan.nodes {
                renew(&client, &home.agent_token(&node.name), ACCOUNT, Some(&node.name)).await;
            }
        }
    });
    Ok(())
}

/// The administrator's kubeconfig with an account's token in place of what makes it the administrator's.
pub(super) fn kubeconfig(admin: &str, token: &Path) -> Result<String> {
    let mut config: Value = serde_saphyr::from_str(admin).context("the administrator's kubeconfig")?;
    let user = config["users"].get_mut(0).context("the administrator's kubeconfig has no user")?;
    user["user"] = json!({"tokenFile": token});
    Ok(format!("{config:#}\n"))
}

/// A token of an account, which ends with a Node if it is bound to one.
pub(super) async fn ask(client: &kube::Client, account: &str, node: Option<&str>) -> Result<String> {
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

/// Writes a fresh token, as soon as there is one.
pub(super) async fn renew(client: &kube::Client, path: &Path, account: &str, node: Option<&str>) {
    let mut pauses = Pauses::default();
    loop {
        let written = ask(client, account, node).await.and_then(|token| {
            let new = path.with_extension("new");
            write_private(&new, &token)?;
            Ok(std::fs::rename(&new, path)?)
        });
        match written {
            Ok(()) => return,
            Err(error) => tracing::debug!("{} is not renewed yet: {error:#}", path.display()),
        }
        tokio::time::sleep_until(Instant::now() + pauses.next()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_administrator_is_left_but_the_way_to_the_api() {
        let admin = "clusters:\n- name: c\n  cluster: {server: https://192.0.2.1, certificate-authority-data: Q0E=}\n\
                     users:\n- name: admin\n  user: {client-certificate-data: a, client-key-data: secret}\n";
        let told: Value = serde_json::from_str(&kubeconfig(admin, Path::new("/t")).unwrap()).unwrap();
        assert_eq!(told["clusters"][0]["cluster"]["server"], "https://192.0.2.1");
        assert_eq!(told["users"], json!([{"name": "admin", "user": {"tokenFile": "/t"}}]));
    }
}
