//! Shared parts of the benchmarks: measurement and output of figures.
//!
//! *Role.* Figures and their output, medians, an allocator that counts memory, and a Node with the released agent.
//!
//! *Invariants.* A figure is one line: `figure=NAME ours=N[unit] peer=N[unit] ratio=N goal=N`. A missed goal is printed
//! as `missed`, and the benchmark still succeeds: it measures, it does not judge.
//!
//! *Not here.* Tests: nothing here asserts a speed.

pub mod latency;
pub mod memory;
pub mod node;
pub mod scales;
pub mod services;
pub mod streams;

use std::fmt;
use std::time::Duration;

/// The limit of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// Ours divided by the peer's is at most this.
    Ratio(f64),
    /// Ours divided by the peer's is at least this.
    Least(f64),
    /// Ours is at most this.
    Ours(f64),
}

/// A measurement, compared with a peer and a goal.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Name, as in the documentation of the benchmarks.
    pub name: &'static str,
    /// Unit of both sides, such as `s` or `MB`.
    pub unit: &'static str,
    /// The measurement of antrea-rs.
    pub ours: f64,
    /// The measurement of the compared program, if there is one.
    pub peer: Option<f64>,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

impl Figure {
    /// Whether the goal is missed.
    pub fn is_missed(&self) -> bool {
        match (self.goal, self.peer) {
            (Some(Goal::Ours(limit)), _) => self.ours > limit,
            (Some(Goal::Ratio(limit)), Some(peer)) => self.ours / peer > limit,
            (Some(Goal::Least(limit)), Some(peer)) => self.ours / peer < limit,
            (Some(Goal::Ratio(_) | Goal::Least(_)), None) | (None, _) => false,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "figure={} ours={}{}", self.name, short(self.ours), self.unit)?;
        if let Some(peer) = self.peer {
            write!(f, " peer={}{} ratio={:.3}", short(peer), self.unit, self.ours / peer)?;
        }
        if let Some(Goal::Ratio(goal) | Goal::Least(goal) | Goal::Ours(goal)) = self.goal {
            write!(f, " goal={goal}")?;
        }
        if self.is_missed() { f.write_str(" missed") } else { Ok(()) }
    }
}

/// Three digits: more would be noise.
fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// Prints a figure to standard output.
#[expect(clippy::print_stdout, reason = "the figures are what these programs are for")]
pub fn report(figure: &Figure) {
    println!("{figure}");
}

/// Prints the current step to standard error.
#[expect(clippy::print_stderr, reason = "long work shows progress")]
pub fn progress(what: &str) {
    eprintln!("bench: {what}");
}

/// The median of several measurements, in seconds; zero if there are none.
pub fn median(times: &[Duration]) -> f64 {
    percentile(times, 50).as_secs_f64()
}

/// The measurement that this percentage of all do not exceed; zero if there are none.
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_line_and_a_missed_goal_is_printed() {
        let mut figure = Figure { name: "flows", unit: "s", ours: 0.5, peer: Some(1.0), goal: Some(Goal::Ratio(0.8)) };
        assert_eq!(figure.to_string(), "figure=flows ours=0.500s peer=1.000s ratio=0.500 goal=0.8");
        figure.ours = 0.9;
        assert_eq!(figure.to_string(), "figure=flows ours=0.900s peer=1.000s ratio=0.900 goal=0.8 missed");
        figure.goal = Some(Goal::Least(2.0));
        assert!(figure.is_missed(), "less than twice as much");
        figure.ours = 2.5;
        assert!(!figure.is_missed());
        let memory =
            Figure { name: "bytes-per-flow", unit: "B", ours: 601.0, peer: None, goal: Some(Goal::Ours(600.0)) };
        assert_eq!(memory.to_string(), "figure=bytes-per-flow ours=601B goal=600 missed");
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let seconds = |n| Duration::from_secs(n);
        assert!((median(&[seconds(9), seconds(1), seconds(3)]) - 3.0).abs() < 1e-9);
    }
    #[test]
    fn a_percentile_is_one_of_the_measurements() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99), Duration::from_millis(198));
        assert_eq!(percentile(&times[..1], 99), times[0]);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
