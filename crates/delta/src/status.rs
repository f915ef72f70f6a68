//! The status of one flow, group or meter: what the switch has, compared with what is desired.

use bitflags::bitflags;

/// What the switch has, compared with what is desired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Installed {
    /// No object with this key.
    #[default]
    Absent,
    /// An object with another value, or with an unknown one.
    Differs,
    /// The object that is desired.
    Same,
}

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Adds the object or replaces the one with its key.
    Put,
    /// Deletes the object with this key.
    Delete,
}

/// The result of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome<'a> {
    /// The switch applied it.
    Applied,
    /// It had no effect, through no fault of its own.
    NotApplied,
    /// The switch rejected it, for this reason.
    Rejected(&'a str),
}

bitflags! {
    /// The rest of the status.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Flags: u8 {
        /// A message about it has been sent and has no outcome yet.
        const IN_FLIGHT = 1;
        /// The desired value changed after the message was made.
        const CHANGED = 2;
        /// It is in the list of objects that may be due.
        const LISTED = 4;
        /// The switch reported it in the current resync.
        const OBSERVED = 8;
        /// The switch rejected the desired value.
        const REJECTED = 16;
        /// This process installed it, so it can be deleted before sweeping is allowed.
        const OURS = 32;
        /// A claim on it points at a group or a meter.
        const POINTS = 64;
    }
}

/// The status of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Status {
    pub(crate) installed: Installed,
    flags: Flags,
}

impl Status {
    pub(crate) fn has(self, flag: Flags) -> bool {
        self.flags.contains(flag)
    }

    pub(crate) fn set(&mut self, flag: Flags, on: bool) {
        self.flags.set(flag, on);
    }

    /// The message that the object needs now.
    pub(crate) fn due(self, desired: bool, sweep: bool) -> Option<Op> {
        if self.flags.intersects(Flags::IN_FLIGHT | Flags::REJECTED) {
            return None;
        }
        match (desired, self.installed) {
            (true, Installed::Same) | (false, Installed::Absent) => None,
            (true, _) => Some(Op::Put),
            (false, _) => (sweep || self.has(Flags::OURS)).then_some(Op::Delete),
        }
    }

    /// Whether an object without claims can be forgotten.
    pub(crate) fn is_gone(self) -> bool {
        self.installed == Installed::Absent && !self.has(Flags::IN_FLIGHT)
    }

    /// Another value is desired, or none. The caller has pinned a value that is in flight: see [`Status::must_pin`].
    pub(crate) fn changed(&mut self) {
        if self.installed == Installed::Same {
            self.installed = Installed::Differs;
        }
        self.set(Flags::CHANGED, self.has(Flags::IN_FLIGHT));
        self.set(Flags::REJECTED, false);
    }

    /// Whether a message in flight refers to the value that is desired now.
    pub(crate) fn must_pin(self) -> bool {
        self.has(Flags::IN_FLIGHT) && !self.has(Flags::CHANGED)
    }

    /// A message is sent; `ours` if it installs nothing that an owner without a claim so far may need.
    pub(crate) fn sent(&mut self, ours: bool) {
        if ours {
            self.set(Flags::OURS, true);
        }
        self.set(Flags::IN_FLIGHT, true);
    }

    /// The outcome of the message is known. A value that is no longer desired does not count as rejected.
    pub(crate) fn concluded(&mut self, op: Op, outcome: Outcome<'_>) {
        let changed = self.has(Flags::CHANGED);
        match (outcome, op) {
            (Outcome::Applied, Op::Delete) => self.installed = Installed::Absent,
            (Outcome::Applied, Op::Put) if changed => self.installed = Installed::Differs,
            (Outcome::Applied, Op::Put) => self.installed = Installed::Same,
            (Outcome::Rejected(_), _) => self.set(Flags::REJECTED, !changed),
            (Outcome::NotApplied, _) => {}
        }
        self.set(Flags::IN_FLIGHT | Flags::CHANGED, false);
    }

    /// A resync starts; it will show the outcome of messages in flight.
    pub(crate) fn begin_resync(&mut self) {
        self.set(Flags::IN_FLIGHT | Flags::CHANGED | Flags::OBSERVED, false);
    }

    /// The switch has reported the object.
    pub(crate) fn observed(&mut self, same: bool) {
        self.set(Flags::OBSERVED, true);
        self.installed = if same { Installed::Same } else { Installed::Differs };
        if same {
            self.set(Flags::REJECTED, false);
        }
    }
}
