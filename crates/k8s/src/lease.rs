//! Leader election by a Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};
use types::ObjectName;

use crate::client::Client;

/// A Lease that is not renewed for this long has expired.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// A leader that could not renew the Lease for this long steps down, before the Lease expires for the others.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// What to do with a Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// Acquire or renew it: it is free, expired, or ours.
    Write,
    /// Another replica holds it.
    Wait,
}

/// The last observed version of a Lease, by the local clock: clocks of other machines are not trusted.
#[derive(Debug, Default)]
struct Observed {
    version: String,
    since: Option<Instant>,
}

impl Observed {
    fn next(&mut self, lease: &Lease, me: &str, now: Instant) -> Action {
        let spec = lease.spec.clone().unwrap_or_default();
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.since.is_none() || version != self.version {
            *self = Self { version, since: Some(now) };
        }
        let holder = spec.holder_identity.unwrap_or_default();
        let duration = spec
            .lease_duration_seconds
            .and_then(|duration| u64::try_from(duration).ok())
            .map_or(LEASE_DURATION, Duration::from_secs);
        let has_expired = self.since.is_some_and(|since| now.duration_since(since) > duration);
        if holder.is_empty() || holder == me || has_expired { Action::Write } else { Action::Wait }
    }
}

impl Client {
    /// Acquires and renews a Lease as `me`, and never returns; `leads` is true while it is held. At most one replica leads at a
    /// time, as long as clocks run at the same speed.
    pub async fn lead(&self, name: &ObjectName, me: &str, leads: &watch::Sender<bool>) {
        let api: Api<Lease> = Api::namespaced(self.kube.clone(), &name.namespace);
        let mut observed = Observed::default();
        let mut renewed: Option<Instant> = None;
        let mut failing = false;
        loop {
            let started = Instant::now();
            let attempt = timeout(RENEW_DEADLINE / 2, hold(&api, name, me, &mut observed)).await;
            let problem = match attempt {
                Ok(Ok(true)) => {
                    renewed = Some(started);
                    None
                }
                Ok(Ok(false)) => {
                    renewed = None;
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the Kubernetes API did not answer in time".to_owned()),
            };
            if let Some(problem) = &problem
                && !failing
            {
                warn!(lease = %name, problem, "cannot acquire or renew the Lease; retrying");
            }
            failing = problem.is_some();
            let now_leads = renewed.is_some_and(|renewed| renewed.elapsed() < RENEW_DEADLINE);
            leads.send_if_modified(|leads| {
                let changed = *leads != now_leads;
                if changed {
                    let what = if now_leads { "acquired the Lease; leading" } else { "lost the Lease; not leading" };
                    info!(lease = %name, identity = me, "{what}");
                }
                *leads = now_leads;
                changed
            });
            sleep_until(started + RENEW_INTERVAL).await;
        }
    }
}

/// Acquires or renews a Lease, if possible. Returns whether it is ours now.
async fn hold(api: &Api<Lease>, name: &ObjectName, me: &str, observed: &mut Observed) -> Result<bool, kube::Error> {
    let now = MicroTime(Timestamp::now());
    let found = api.get_opt(&name.name).await?;
    let written = match found {
        None => {
            let spec = spec(me, now, None);
            let metadata = ObjectMeta { name: Some(name.name.clone()), ..ObjectMeta::default() };
            api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
        }
        Some(mut lease) => {
            if observed.next(&lease, me, Instant::now()) == Action::Wait {
                return Ok(false);
            }
            lease.spec = Some(spec(me, now, lease.spec.as_ref()));
            api.replace(&name.name, &PostParams::default(), &lease).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

fn spec(me: &str, now: MicroTime, old: Option<&LeaseSpec>) -> LeaseSpec {
    let held = old.filter(|old| old.holder_identity.as_deref() == Some(me));
    let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
        acquire_time: held.and_then(|held| held.acquire_time.clone()).or_else(|| Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(transitions + i32::from(old.is_some() && held.is_none())),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;

    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
        Lease { metadata, spec: Some(spec(holder, MicroTime(Timestamp::now()), None)) }
    }

    #[test]
    fn a_lease_is_acquired_after_it_expired_and_not_before() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        assert_eq!(observed.next(&lease("other", "1"), "me", start), Action::Wait);
        assert_eq!(observed.next(&lease("other", "1"), "me", start + LEASE_DURATION), Action::Wait);
        // It was renewed.
        assert_eq!(observed.next(&lease("other", "2"), "me", start + LEASE_DURATION * 2), Action::Wait);
        assert_eq!(observed.next(&lease("other", "2"), "me", start + LEASE_DURATION * 3), Action::Wait);
        assert_eq!(observed.next(&lease("other", "2"), "me", start + LEASE_DURATION * 4), Action::Write);
        assert_eq!(observed.next(&lease("me", "3"), "me", start), Action::Write);
        assert_eq!(observed.next(&lease("", "4"), "me", start), Action::Write);
    }

    #[test]
    fn the_time_in_a_lease_does_not_matter() {
        let (now, ten_years) = (Timestamp::now(), SignedDuration::from_hours(10 * 365 * 24));
        for renewed in [now - ten_years, now + ten_years] {
            let (mut observed, start) = (Observed::default(), Instant::now());
            let mut lease = lease("other", "1");
            lease.spec = Some(spec("other", MicroTime(renewed), None));
            assert_eq!(observed.next(&lease, "me", start), Action::Wait, "{renewed}");
            assert_eq!(observed.next(&lease, "me", start + LEASE_DURATION), Action::Wait, "{renewed}");
            assert_eq!(observed.next(&lease, "me", start + LEASE_DURATION * 2), Action::Write, "{renewed}");
        }
    }
}
