//! `check`: tests connectivity and prints the matrix.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::ListParams;
use testkit::process::kill_with_parent;
use tokio::io::AsyncWriteExt;

use super::{enter, say};
use crate::check::matrix::{Cell, Matrix};
use crate::check::targets::{Place, Source, Target};
use crate::check::trial::{Outcome, Probe};
use crate::check::{svg, table, targets};
use crate::cli::LabName;
use crate::client;
use crate::mounts::PROGRAM;
use crate::program::current_exe;
use crate::state::{Home, Lab};

/// Number of sources that probe at the same time. With more, a busy machine would look like a broken network.
const AT_ONCE: usize = 4;

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    lab: LabName,
    /// Save the matrix as an SVG image
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let home = Home::of(&options.lab.name);
    let lab = home.alive()?;
    let matrix = measure(&home, &lab).await?;
    say(table::draw(&matrix));
    if let Some(path) = options.svg {
        std::fs::write(&path, svg::draw(&matrix)).with_context(|| format!("cannot write {}", path.display()))?;
        say(format!("saved as {}", path.display()));
    }
    Ok(())
}

/// Runs all probes from all sources.
pub(crate) async fn measure(home: &Home, lab: &Lab) -> Result<Matrix> {
    let client = client::connect(&home.kubeconfig()).await?;
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
    let services = Api::<Service>::all(client).list(&ListParams::default()).await?.items;
    let (sources, targets) = targets::all(&lab.plan, &pods, &services);
    let rows = sources.iter().map(|source| row(home, lab, source, &targets));
    let cells = stream::iter(rows).buffered(AT_ONCE).try_collect().await?;
    Ok(Matrix {
        sources: sources.into_iter().map(|source| source.party).collect(),
        targets: targets.into_iter().map(|target| target.party).collect(),
        cells,
    })
}

async fn row(home: &Home, lab: &Lab, source: &Source, targets: &[Target]) -> Result<Vec<Cell>> {
    let probes: Vec<Probe> = targets.iter().flat_map(|target| target.probes.clone()).collect();
    let outcomes = attempt(home, lab, &source.place, &probes);
    let outcomes = outcomes.await.with_context(|| format!("from {}/{}", source.party.group, source.party.name))?;
    let mut rest = outcomes.as_slice();
    let cell = |target: &Target| {
        let (own, others) = rest.split_at_checked(target.probes.len()).unwrap_or_default();
        rest = others;
        if target.place.as_ref() == Some(&source.place) { Cell::Itself } else { Cell::of(own) }
    };
    Ok(targets.iter().map(cell).collect())
}

/// Runs probes in a process in the network namespace of the source.
async fn attempt(home: &Home, lab: &Lab, place: &Place, probes: &[Probe]) -> Result<Vec<Outcome>> {
    let mut command = match place {
        Place::Pod(namespace, pod, node) => {
            let found = enter::Found { namespace: namespace.clone(), pod: pod.clone(), node: node.clone() };
            let mut command = enter::pod_network(home, lab, &found)?;
            command.arg(PROGRAM);
            command
        }
        Place::Node(name) => {
            let mut command = enter::node(home, lab, name)?;
            command.arg(PROGRAM);
            command
        }
        Place::Outside => {
            let mut command = enter::node(home, lab, "outside")?;
            command.arg(current_exe()?);
            command
        }
    };
    command.args(["internal", "probe"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    kill_with_parent(&mut command);
    let mut child = tokio::process::Command::from(command).spawn().context("cannot run nsenter")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(&serde_json::to_vec(probes)?).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).with_context(|| said.trim().to_owned())
}
