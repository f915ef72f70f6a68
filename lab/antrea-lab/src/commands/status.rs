//! `status`: prints controllers, Nodes and Pods.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::Api;
use kube::api::ListParams;

use super::say;
use crate::cli::LabName;
use crate::client;
use crate::state::Home;

/// Prints tables of controllers, Nodes and Pods.
pub(crate) async fn run(lab_name: LabName) -> Result<()> {
    let home = Home::of(&lab_name.name);
    let lab = home.alive()?;
    let client = client::connect(&home.kubeconfig()).await?;
    let plan = &lab.plan;
    let state = if lab.ready { "up" } else { "starting" };
    say(format!(
        "lab `{}` is {state}: {:?}, {:?} network, {:?} API",
        plan.name, plan.mode, plan.network, plan.kubernetes
    ));
    say(format!("kubeconfig: {}", home.kubeconfig().display()));
    if plan.controllers > 0 {
        let slices = Api::<EndpointSlice>::namespaced(client.clone(), "kube-system");
        let slice = slices.get_opt("antrea-lab").await?.unwrap_or_default();
        say("");
        say(table(
            &["CONTROLLER", "READY", "ADDRESS"],
            slice.endpoints.iter().flatten().enumerate().map(controller_row),
        ));
    }
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    say("");
    say(table(&["NODE", "READY", "ADDRESS", "PODS"], nodes.iter().map(node_row)));
    let pods = Api::<Pod>::all(client).list(&ListParams::default()).await?;
    say("");
    say(table(&["NAMESPACE", "POD", "READY", "STATUS", "RESTARTS", "IP", "NODE"], pods.iter().map(pod_row)));
    Ok(())
}

fn controller_row((number, endpoint): (usize, &Endpoint)) -> Vec<String> {
    let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or_default();
    let ready = if ready { "True" } else { "False" };
    vec![format!("antrea-controller-{}", number + 1), ready.to_owned(), endpoint.addresses.join(" ")]
}

fn node_row(node: &Node) -> Vec<String> {
    let status = node.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    let address = status.addresses.iter().flatten().find(|address| address.type_ == "InternalIP");
    let cidrs = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default();
    vec![
        node.metadata.name.clone().unwrap_or_default(),
        ready.map_or_else(|| "Unknown".to_owned(), |condition| condition.status.clone()),
        address.map(|address| address.address.clone()).unwrap_or_default(),
        cidrs.join(" "),
    ]
}

fn pod_row(pod: &Pod) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let ready = containers.iter().filter(|container| container.ready).count();
    let restarts: i32 = containers.iter().map(|container| container.restart_count).sum();
    let waiting = containers.iter().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let ending = pod.metadata.deletion_timestamp.as_ref().map(|_| "Terminating".to_owned());
    vec![
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
        format!("{ready}/{}", containers.len()),
        ending.or(waiting).or(status.phase).unwrap_or_default(),
        restarts.to_string(),
        status.pod_ip.unwrap_or_default(),
        pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
    ]
}

/// Formats rows with columns as wide as their widest cell.
pub(crate) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(ToString::to_string).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["long name".to_owned(), "1".to_owned()], vec!["x".to_owned(), String::new()]];
        assert_eq!(table(&["A", "B"], rows.into_iter()), "A          B\nlong name  1\nx");
    }
}
