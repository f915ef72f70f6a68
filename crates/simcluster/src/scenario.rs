//! Scenarios: a cluster and steps that change it; after each step, the sent batches, the state of Nodes, and the
//! results of probes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use node::Problem;
use serde::Deserialize;
use serde_json::Value;
use types::pod::Pod;

use crate::cluster::Cluster;
use crate::object::{Manifest, Object, ObjectKey};
use crate::probe::Probe;
use crate::text::{self, Lines};
use crate::{Error, cluster};

/// A cluster and the steps that change it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Purpose of the scenario, in one sentence.
    pub description: String,
    manifest: Manifest,
    probes: Vec<Probe>,
    steps: Vec<Step>,
    /// Whether the final state depends on the order of the steps, or on the time between them.
    is_sequential: bool,
}

/// One change of the cluster.
#[derive(Clone, Debug)]
pub struct Step {
    /// Name of the step, which heads its part of the golden files.
    pub name: String,
    apply: Vec<Object>,
    delete: Vec<ObjectKey>,
    stop: Vec<String>,
    restart: Vec<String>,
    controller: Option<Power>,
    advance: Duration,
    probes: Vec<Probe>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Power {
    Up,
    Down,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScenarioFile {
    description: String,
    /// Names of files with objects that several scenarios share.
    #[serde(default)]
    base: Vec<String>,
    #[serde(default)]
    probes: Vec<String>,
    #[serde(default)]
    sequential: bool,
    #[serde(default)]
    steps: Vec<StepFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepFile {
    name: String,
    #[serde(default)]
    apply: Vec<Value>,
    #[serde(default)]
    delete: Vec<String>,
    /// Nodes with agents to stop; `restart` starts them.
    #[serde(default)]
    stop: Vec<String>,
    #[serde(default)]
    restart: Vec<String>,
    controller: Option<Power>,
    #[serde(default)]
    seconds: u64,
    #[serde(default)]
    probes: Vec<String>,
}

/// The output of a scenario, one golden file for each field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Batches that the controller sends to each Node.
    pub controller: String,
    /// Flows and groups of each Node.
    pub switch: String,
    /// Routes, neighbours, settings and firewall of each Node.
    pub host: String,
    /// The result of each probe.
    pub traffic: String,
    /// Problems that the controller and the agents report; empty if there were none.
    pub problems: String,
}

/// The final state of every Node: flows, groups and host state. To compare two ways that lead there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Final(BTreeMap<String, (Lines, Lines)>);

impl Final {
    /// The difference between two final states, by Node and object; empty if they are equal.
    pub fn difference(&self, other: &Self) -> String {
        let none = (Lines::new(), Lines::new());
        let nodes: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let mut text = String::new();
        for node in nodes {
            let (old, new) = (self.0.get(node).unwrap_or(&none), other.0.get(node).unwrap_or(&none));
            let changed = text::difference(&old.0, &new.0) + &text::difference(&old.1, &new.1);
            if !changed.is_empty() {
                text += &format!("-- {node}\n{changed}");
            }
        }
        text
    }
}

impl Scenario {
    /// Reads a scenario: a manifest of the cluster, and a file of steps. `base` loads a manifest by name.
    pub fn read(cluster: &str, steps: &str, base: impl Fn(&str) -> Result<String, Error>) -> Result<Self, Error> {
        let in_steps = |error: Error| error.at("steps.yaml");
        let file: ScenarioFile =
            serde_saphyr::from_str(steps).map_err(|error| in_steps(Error::new(error.to_string())))?;
        let mut manifest = Manifest::default();
        for name in &file.base {
            let text = base(name).map_err(|error| in_steps(error.at(format!("base `{name}`"))))?;
            manifest.extend(&text).map_err(|error| error.at(format!("base `{name}`")))?;
        }
        manifest.extend(cluster).map_err(|error| error.at("cluster.yaml"))?;
        let probes = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Probe>, Error>>();
        let mut steps = Vec::new();
        for step in file.steps {
            let at = |error: Error| in_steps(error.at(format!("step `{}`", step.name)));
            steps.push(Step {
                apply: Manifest::from_values(step.apply).map_err(|error| at(error.at("apply")))?.objects,
                delete: step.delete.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(at)?,
                stop: step.stop,
                restart: step.restart,
                controller: step.controller,
                advance: Duration::from_secs(step.seconds),
                probes: probes(&step.probes).map_err(at)?,
                name: step.name,
            });
        }
        let probes = probes(&file.probes).map_err(in_steps)?;
        Ok(Self { description: file.description, manifest, probes, steps, is_sequential: file.sequential })
    }

    /// Runs the scenario in the order of its steps.
    pub fn run(&self) -> Result<(Outcome, Final), Error> {
        let mut cluster = self.empty();
        for object in &self.manifest.objects {
            cluster.apply(object.clone()).map_err(|error| self.manifest.locate(error))?;
        }
        cluster.sync();
        let mut record = Record::default();
        record.take(&mut cluster, "start", &self.probes)?;
        for step in &self.steps {
            step.carry_out(&mut cluster).map_err(|error| error.at(format!("step `{}`", step.name)))?;
            let probes: Vec<Probe> = self.probes.iter().chain(&step.probes).cloned().collect();
            record.take(&mut cluster, &step.name, &probes)?;
        }
        Ok((record.outcome, held(&cluster)))
    }

    /// Final states of other ways that must lead to the same state, by name.
    pub fn variants(&self) -> Result<BTreeMap<&'static str, Final>, Error> {
        let mut ends = BTreeMap::new();
        let mut reversed = self.manifest.objects.clone();
        reversed.reverse();
        ends.insert("objects in reverse order", self.follow(&reversed, self.steps.iter(), |_| Ok(()))?);
        let objects = &self.manifest.objects;
        ends.insert("every agent restarted after every step", self.follow(objects, self.steps.iter(), restart_agents)?);
        if !self.steps.iter().any(|step| step.controller.is_some()) {
            ends.insert(
                "controller restarted after every step",
                self.follow(objects, self.steps.iter(), |cluster| {
                    cluster.stop_controller();
                    cluster.start_controller();
                    cluster.settle().map(drop)
                })?,
            );
        }
        if !self.is_sequential {
            ends.insert("steps in reverse order", self.follow(objects, self.steps.iter().rev(), |_| Ok(()))?);
            ends.insert("all steps at once", self.squash()?);
        }
        Ok(ends)
    }

    /// Runs the steps, and `after` following each of them.
    fn follow<'a>(
        &self,
        objects: &[Object],
        steps: impl Iterator<Item = &'a Step>,
        mut after: impl FnMut(&mut Cluster) -> Result<(), Error>,
    ) -> Result<Final, Error> {
        let mut cluster = self.empty();
        for object in objects {
            cluster.apply(object.clone())?;
        }
        cluster.sync();
        cluster.settle()?;
        after(&mut cluster)?;
        for step in steps {
            step.carry_out(&mut cluster)?;
            cluster.settle()?;
            after(&mut cluster).map_err(|error| error.at(format!("step `{}`", step.name)))?;
        }
        Ok(held(&cluster))
    }

    /// Applies all steps before any batch is sent.
    fn squash(&self) -> Result<Final, Error> {
        let mut cluster = self.empty();
        for object in &self.manifest.objects {
            cluster.apply(object.clone())?;
        }
        for step in &self.steps {
            step.carry_out(&mut cluster)?;
        }
        cluster.sync();
        cluster.settle()?;
        Ok(held(&cluster))
    }

    fn empty(&self) -> Cluster {
        let objects = self.manifest.objects.iter().chain(self.steps.iter().flat_map(|step| &step.apply));
        let pods = objects.filter_map(|object| match object {
            Object::Pod(pod) => Some::<&Pod>(pod),
            _ => None,
        });
        cluster::Cluster::new(self.manifest.nodes.clone(), pods)
    }
}

impl Step {
    fn carry_out(&self, cluster: &mut Cluster) -> Result<(), Error> {
        match self.controller {
            Some(Power::Up) => cluster.start_controller(),
            Some(Power::Down) => cluster.stop_controller(),
            None => {}
        }
        for node in &self.stop {
            cluster.stop_agent(node)?;
        }
        for object in &self.apply {
            cluster.apply(object.clone())?;
        }
        for key in &self.delete {
            cluster.delete(key)?;
        }
        for node in &self.restart {
            cluster.restart_agent(node)?;
        }
        cluster.advance(self.advance);
        Ok(())
    }
}

/// Restarts every agent: none of them may send a message to its switch, except those that the scenario restarts.
fn restart_agents(cluster: &mut Cluster) -> Result<(), Error> {
    let nodes: Vec<String> = cluster.agents().map(|(name, _)| name.to_owned()).collect();
    let asks_for_it = |problem: &Problem| matches!(problem, Problem::Restart(_));
    for node in nodes {
        if !cluster.is_running(&node) {
            continue;
        }
        let is_due = cluster.agent(&node).is_some_and(|agent| agent.brain().problems().iter().any(asks_for_it));
        cluster.restart_agent(&node)?;
        cluster.settle()?;
        let messages = cluster.agent(&node).map(crate::Agent::messages).unwrap_or_default();
        if messages > 0 && !is_due {
            return Err(Error::new(format!("the agent of Node {node} sent {messages} messages after a restart")));
        }
    }
    Ok(())
}

fn held(cluster: &Cluster) -> Final {
    let of = |agent: &crate::Agent| (text::switch(agent), text::host(&agent.brain().host()));
    Final(cluster.agents().map(|(name, agent)| (name.to_owned(), of(agent))).collect())
}

#[derive(Default)]
struct Record {
    outcome: Outcome,
    before: Final,
}

impl Record {
    fn take(&mut self, cluster: &mut Cluster, name: &str, probes: &[Probe]) -> Result<(), Error> {
        let at = |error: Error| error.at(format!("step `{name}`"));
        let deliveries = cluster.settle().map_err(at)?;
        let Outcome { controller, switch, host, traffic, problems } = &mut self.outcome;
        for text in [&mut *controller, switch, host, traffic] {
            let _ = writeln!(text, "{}== {name}", if text.is_empty() { "" } else { "\n" });
        }
        controller.extend(deliveries.iter().map(text::delivery));
        let after = held(cluster);
        let none = (Lines::new(), Lines::new());
        let nodes: BTreeSet<&String> = self.before.0.keys().chain(after.0.keys()).collect();
        for node in nodes {
            let (old, new) = (self.before.0.get(node).unwrap_or(&none), after.0.get(node).unwrap_or(&none));
            for (text, changed) in
                [(&mut *switch, text::difference(&old.0, &new.0)), (&mut *host, text::difference(&old.1, &new.1))]
            {
                if !changed.is_empty() {
                    let _ = write!(text, "-- {node}\n{changed}");
                }
            }
        }
        for probe in probes {
            let connection = cluster.probe(probe).map_err(at)?;
            let _ = writeln!(traffic, "{probe}: {}", text::connection(cluster, &connection));
        }
        for (n, (by, problem)) in cluster.problems().into_iter().enumerate() {
            if n == 0 {
                let _ = writeln!(problems, "{}== {name}", if problems.is_empty() { "" } else { "\n" });
            }
            let _ = writeln!(problems, "{by}: {problem}");
        }
        self.before = after;
        Ok(())
    }
}
