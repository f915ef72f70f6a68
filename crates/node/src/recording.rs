//! Recordings of an agent: all events of its brain, with their times, as lines of JSON.
//!
//! The first line is a [`Header`], each further one an [`Entry`]. The brain is deterministic: a [`Replay`] of the events has the
//! same desired state at every step as the agent had. A recording may begin with a checkpoint ([`crate::Brain::checkpoint`]) in the
//! place of events that were dropped.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::addressing::Own;
use crate::brain::Brain;
use crate::database::BridgeSpec;
use crate::event::{Event, Time};

/// The version of the format that this crate writes and reads.
pub const FORMAT: u32 = 1;

/// What an agent has determined before its first event.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Header {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Version of the agent.
    pub version: String,
    /// Name, addresses and features of the Node.
    pub own: Own,
    /// The bridge in OVSDB.
    pub bridge: BridgeSpec,
}

/// Events that the brain has handled together.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Entry {
    /// Time since the agent's start, in nanoseconds.
    pub at: u64,
    /// The events of one step, in order.
    pub events: Vec<Event>,
}

/// An [`Entry`] to write.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EntryRef<'a> {
    at: u64,
    events: &'a [Event],
}

impl<'a> EntryRef<'a> {
    /// An entry for a step at this time.
    pub fn new(now: Time, events: &'a [Event]) -> Self {
        // Enough for 584 years.
        Self { at: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), events }
    }
}

impl Entry {
    /// The time of the step.
    pub fn time(&self) -> Time {
        Duration::from_nanos(self.at)
    }
}

/// Why a recording cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidRecording {
    /// A line is not valid JSON, or not an entry.
    #[error("line {line}: {problem}")]
    #[expect(missing_docs, reason = "the names say it")]
    Line { line: usize, problem: String },
    /// The recording has another format.
    #[error("line 1: format {0} of the recording is not {FORMAT}: use an antctl of the agent's version, {1}")]
    Format(u32, String),
    /// There is no header.
    #[error("line 1: the recording is empty")]
    Empty,
}

/// A brain that replays a recording.
#[derive(Debug)]
pub struct Replay {
    brain: Brain,
    bridge: BridgeSpec,
}

impl Replay {
    /// Starts a brain as the agent did.
    pub fn new(header: Header) -> Result<Self, InvalidRecording> {
        if header.format != FORMAT {
            return Err(InvalidRecording::Format(header.format, header.version));
        }
        Ok(Self { brain: Brain::new(header.own), bridge: header.bridge })
    }

    /// Takes the step of an entry.
    pub fn step(&mut self, entry: Entry) {
        self.brain.step(entry.time(), entry.events);
    }

    /// The brain after the last step; its effects are not carried out.
    pub fn brain(&mut self) -> &mut Brain {
        &mut self.brain
    }

    /// The desired state of OVSDB.
    pub fn database(&self) -> crate::database::Desired {
        self.brain.database(self.bridge.clone())
    }
}
