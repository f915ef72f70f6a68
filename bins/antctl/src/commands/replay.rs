//! `antctl replay`: runs the recording of an agent through the agent's brain, and shows what changed in the switch, and why.

mod describe;
mod file;
mod step;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use node::recording::Replay;

use file::Recording;
use step::Shown;

/// Replays the events that an agent has recorded (`eventRecording.enable`).
#[derive(Args)]
#[command(after_help = "\
Examples:
  antctl replay /var/run/antrea/recording/events.jsonl
  antctl replay events.jsonl --last 100 --changes
  antctl replay events.jsonl --from 12.5 --to 14
  antctl replay events.jsonl --last 0 --state")]
pub(crate) struct Command {
    /// File with the recording of an agent
    file: PathBuf,
    /// Show this many of the last steps
    #[arg(long, default_value_t = 10, value_name = "STEPS")]
    last: usize,
    /// Show steps from this time on, in seconds since the agent's start, instead of the last ones
    #[arg(long, value_name = "SECONDS")]
    from: Option<f64>,
    /// Show steps until this time
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,
    /// Show only steps that change the switch, the host or OVSDB
    #[arg(long)]
    changes: bool,
    /// Show all flows, groups, routes and Pod ports at the end
    #[arg(long)]
    state: bool,
}

impl Command {
    pub(crate) fn run(&self) -> Result<String> {
        let steps = Recording::count(&self.file)?;
        let (mut replay, mut recording) = Recording::open(&self.file)?;
        let (mut out, mut last, mut events) = (String::new(), Duration::ZERO, 0);
        let (began, mut showing) = (Instant::now(), Duration::ZERO);
        let mut number = 0;
        while let Some(entry) = recording.next().transpose()? {
            number += 1;
            last = entry.time();
            events += entry.events.len();
            if self.shows(number, steps, last) {
                let began = Instant::now();
                let Shown { text, has_changes } = step::show(&mut replay, number, entry);
                if has_changes || !self.changes {
                    out.push_str(&text);
                }
                showing += began.elapsed();
            } else {
                replay.step(entry);
                replay.brain().take_effects();
            }
        }
        let replaying = began.elapsed() - showing;
        let end = End::of(&mut replay);
        if self.state {
            out.push_str(&end.text());
        }
        let End { flows, groups, routes, ports } = &end;
        let counts = [flows.len(), groups.len(), routes.len(), ports.len()];
        let [flows, groups, routes, ports] = counts;
        let (recorded, replayed) = (last.as_secs_f64(), replaying.as_secs_f64());
        writeln!(out, "{number} steps with {events} events, recorded in {recorded:.3} s, replayed in {replayed:.3} s")?;
        writeln!(out, "at the end: {flows} flows, {groups} groups, {routes} routes, {ports} Pod ports")?;
        if recording.is_torn {
            writeln!(out, "the last line is incomplete: the agent was killed while it wrote")?;
        }
        Ok(out)
    }

    fn shows(&self, number: usize, steps: usize, at: Duration) -> bool {
        let seconds = at.as_secs_f64();
        if self.from.is_some() || self.to.is_some() {
            return self.from.is_none_or(|from| seconds >= from) && self.to.is_none_or(|to| seconds <= to);
        }
        number + self.last > steps
    }
}

/// The desired state at the end of a recording, sorted.
struct End {
    flows: Vec<String>,
    groups: Vec<String>,
    routes: Vec<String>,
    ports: Vec<String>,
}

impl End {
    fn of(replay: &mut Replay) -> Self {
        let brain = replay.brain();
        let mut flows: Vec<String> = brain.desired_flows().map(|flow| flow.to_string()).collect();
        let mut groups: Vec<String> = brain.groups().map(|(group, _)| group.to_string()).collect();
        flows.sort();
        groups.sort();
        let routes = brain.host().routes.iter().map(describe::route).collect();
        let ports = replay.database().pods.values().map(|(port, number)| describe::port(port, *number)).collect();
        Self { flows, groups, routes, ports }
    }

    fn text(&self) -> String {
        let sections = [&self.flows, &self.groups, &self.routes, &self.ports];
        sections.into_iter().flatten().map(|line| format!("{line}\n")).collect()
    }
}
