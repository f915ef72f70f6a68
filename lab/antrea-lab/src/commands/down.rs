//! `down`: ends a lab.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::say;
use crate::cli::LabName;
use crate::state::{Home, Lab};

/// How long the supervisor may take to clean up, before it is killed, which ends everything too.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends a lab, or removes the leftovers of a crashed one. Succeeds if there is no lab.
pub(crate) fn run(lab_name: &LabName) -> Result<()> {
    let home = Home::of(&lab_name.name);
    // A damaged file, left by a crash, does not say which process to end.
    if let Some(lab) = home.read().unwrap_or_default().filter(Lab::is_alive) {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // It may have ended a moment ago.
            let _ = kill(Pid::from_raw(lab.pid.cast_signed()), signal);
            if ended(&lab) {
                break;
            }
        }
        if lab.is_alive() {
            bail!("process {} of the lab `{}` does not end", lab.pid, lab_name.name);
        }
        home.remove()?;
        say(format!("the lab `{}` is gone", lab_name.name));
    } else if home.remove()? {
        say(format!("removed what was left of the lab `{}`", lab_name.name));
    } else {
        say(format!("there is no lab `{}`", lab_name.name));
    }
    Ok(())
}

fn ended(lab: &Lab) -> bool {
    let deadline = Instant::now() + STOP_TIMEOUT;
    while lab.is_alive() && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    !lab.is_alive()
}
