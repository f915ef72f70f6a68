//! The table of attacks and their effects.

use std::time::Duration;

use super::attack::{Attacker, Effect};
use super::field::Mode;

/// Lost messages that a busy machine is forgiven, whatever the share.
const FORGIVEN: usize = 2;

/// A row: an attack and its effect.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) attacker: Attacker,
    pub(super) mode: Mode,
    pub(super) undefended: bool,
    pub(super) effect: Effect,
    /// Allowed messages while it went on, and those that were lost.
    pub(super) messages: usize,
    pub(super) lost: usize,
    pub(super) took: Duration,
    /// How much of them may be lost, in percent.
    pub(super) limit: f64,
}

impl Row {
    fn loss(&self) -> f64 {
        let (lost, messages) = (u32::try_from(self.lost).unwrap(), u32::try_from(self.messages.max(1)).unwrap());
        100.0 * f64::from(lost) / f64::from(messages)
    }

    fn outcome(&self) -> &'static str {
        match (self.effect.forbidden > 0, self.lost > FORGIVEN && self.loss() >= self.limit) {
            (true, _) if self.undefended => "not defended",
            (true, _) => "BROKEN",
            (false, true) => "LOSS",
            (false, false) => "held",
        }
    }

    /// Whether it is as it should be.
    pub(super) fn held(&self) -> bool {
        matches!(self.outcome(), "held" | "not defended")
    }

    pub(super) fn line(&self) -> String {
        let Self { name, attacker, mode, effect: Effect { sent, forbidden, note }, .. } = self;
        let (mode, loss, outcome, took) = (mode.name(), self.loss(), self.outcome(), self.took.as_secs_f32());
        format!(
            "{name:<46} {attacker:<16} {mode:<8} {sent:>6} {forbidden:>9} {loss:>6.2} {took:>5.1}  {outcome:<12} {note}"
        )
    }
}

pub(super) const HEAD: &str =
    "attempt                                        attacker         mode       sent forbidden loss %     s  outcome";
