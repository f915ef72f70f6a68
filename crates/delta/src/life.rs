//! Where one flow, group or meter stands between what is wanted and what the switch holds.

use bitflags::bitflags;

/// What the switch holds, compared with what is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Installed {
    /// Nothing.
    #[default]
    Absent,
    /// Something else, or nobody knows what.
    Differs,
    /// Just that.
    Same,
}

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Adds it, in place of what may be there.
    Put,
    /// Removes it.
    Delete,
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome<'a> {
    /// The switch has carried it out.
    Landed,
    /// It had no effect.
    Returned,
    /// The switch refused it, and said why.
    Refused(&'a str),
}

bitflags! {
    /// The rest of what is remembered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Marks: u8 {
        /// A message about it is under way.
        const IN_FLIGHT = 1;
        /// What is wanted has changed since the message was made.
        const CHANGED = 2;
        /// It stands in the list of what may be due.
        const LISTED = 4;
        /// The switch has listed it in the current resync.
        const SEEN = 8;
        /// The switch refused it as it is wanted now.
        const REFUSED = 16;
        /// It came into the switch through us, so nobody else can miss it.
        const OURS = 32;
        /// Someone who wants it wants it to point at a group or a meter.
        const POINTS = 64;
    }
}

/// Where one thing stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Life {
    pub(crate) installed: Installed,
    marks: Marks,
}

impl Life {
    pub(crate) fn is(self, mark: Marks) -> bool {
        self.marks.contains(mark)
    }

    pub(crate) fn mark(&mut self, mark: Marks, on: bool) {
        self.marks.set(mark, on);
    }

    /// What it needs now.
    pub(crate) fn due(self, wanted: bool, sweep: bool) -> Option<Op> {
        if self.marks.intersects(Marks::IN_FLIGHT | Marks::REFUSED) {
            return None;
        }
        match (wanted, self.installed) {
            (true, Installed::Same) | (false, Installed::Absent) => None,
            (true, _) => Some(Op::Put),
            (false, _) => (sweep || self.is(Marks::OURS)).then_some(Op::Delete),
        }
    }

    /// Whether nothing is left to remember of something that nobody wants.
    pub(crate) fn is_over(self) -> bool {
        self.installed == Installed::Absent && !self.is(Marks::IN_FLIGHT)
    }

    /// Another value is wanted, or none. What is under way has to be pinned first: see [`Life::must_pin`].
    pub(crate) fn changed(&mut self) {
        if self.installed == Installed::Same {
            self.installed = Installed::Differs;
        }
        self.mark(Marks::CHANGED, self.is(Marks::IN_FLIGHT));
        self.mark(Marks::REFUSED, false);
    }

    /// Whether a message under way still relies on the value that is wanted now.
    pub(crate) fn must_pin(self) -> bool {
        self.is(Marks::IN_FLIGHT) && !self.is(Marks::CHANGED)
    }

    /// A message goes out; `ours` if what it installs cannot be what anyone else still wants.
    pub(crate) fn sent(&mut self, ours: bool) {
        if ours {
            self.mark(Marks::OURS, true);
        }
        self.mark(Marks::IN_FLIGHT, true);
    }

    /// The message is no longer under way. Refused is only what is still wanted as it was sent.
    pub(crate) fn concluded(&mut self, op: Op, outcome: Outcome<'_>) {
        let changed = self.is(Marks::CHANGED);
        match (outcome, op) {
            (Outcome::Landed, Op::Delete) => self.installed = Installed::Absent,
            (Outcome::Landed, Op::Put) if changed => self.installed = Installed::Differs,
            (Outcome::Landed, Op::Put) => self.installed = Installed::Same,
            (Outcome::Refused(_), _) => self.mark(Marks::REFUSED, !changed),
            (Outcome::Returned, _) => {}
        }
        self.mark(Marks::IN_FLIGHT | Marks::CHANGED, false);
    }

    /// The switch is about to be listed; whatever was under way, the list will tell.
    pub(crate) fn begin_resync(&mut self) {
        self.mark(Marks::IN_FLIGHT | Marks::CHANGED | Marks::SEEN, false);
    }

    /// The switch has listed it.
    pub(crate) fn observed(&mut self, same: bool) {
        self.mark(Marks::SEEN, true);
        self.installed = if same { Installed::Same } else { Installed::Differs };
        if same {
            self.mark(Marks::REFUSED, false);
        }
    }
}
