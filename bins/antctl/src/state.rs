//! A Node described in a file: Kubernetes objects, and the settings that are not Kubernetes objects.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use openflow::flow::Flow;
use openflow::group::Group;
use simcluster::{Agent, Cluster, Manifest, render_flows};
use simulator::Simulator;

/// The Node of a file, as its agent would configure it.
#[derive(Debug)]
pub(crate) struct NodeView {
    cluster: Cluster,
    node: String,
}

impl NodeView {
    /// Reads a file and starts the agent of the Node that its `NodeState` names.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| file.clone())?;
        Self::read(&text).with_context(|| file)
    }

    fn read(text: &str) -> Result<Self> {
        let manifest = Manifest::read(text)?;
        let node = match manifest.nodes.keys().collect::<Vec<_>>().as_slice() {
            [node] => (*node).clone(),
            [] => bail!("needs a document `kind: NodeState` that names the Node"),
            _ => bail!("has more than one document `kind: NodeState`: a file describes one Node"),
        };
        let cluster = Cluster::start(&manifest)?;
        if let Some((_, problem)) = cluster.problems().into_iter().next() {
            return Err(manifest.locate(simcluster::Error::new(problem)).into());
        }
        Ok(Self { cluster, node })
    }

    fn agent(&self) -> Result<&Agent> {
        self.cluster.agent(&self.node).ok_or_else(|| anyhow!("Node {}: no agent in the simulated cluster", self.node))
    }

    /// The flows of the switch with their owners, by table and then by descending priority.
    pub(crate) fn flows(&self) -> Result<Vec<(Flow, String)>> {
        Ok(render_flows(self.agent()?))
    }

    /// The groups with their owners, by id.
    pub(crate) fn groups(&self) -> Result<Vec<(Group, String)>> {
        let agent = self.agent()?;
        let owner =
            |owners: Vec<node::Owner>| owners.iter().map(|owner| agent.brain().owner_name(owner)).collect::<Vec<_>>();
        Ok(agent.brain().groups().map(|(group, owners)| (group, owner(owners).join(", "))).collect())
    }

    /// Names of the owners of a flow.
    pub(crate) fn owners_of(&self, flow: &Flow) -> Vec<String> {
        let Ok(agent) = self.agent() else { return Vec::new() };
        agent.owners_of(flow).iter().map(|owner| agent.brain().owner_name(owner)).collect()
    }

    /// A simulator with the flows and groups of the Node, to trace packets.
    pub(crate) fn switch(&self) -> Result<Simulator> {
        Ok(self.agent()?.switch().clone())
    }
}
