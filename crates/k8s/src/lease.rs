//! One of several: a Lease says who.

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

/// How long a Lease is good without being renewed.
const LIFE: Duration = Duration::from_secs(15);
/// How often it is renewed, and looked at.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// Whoever could not renew it for so long no longer believes to hold it, before somebody else may.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What is to be done about a Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It is ours, or nobody's any more: write it.
    Write,
    /// It is somebody else's.
    Wait,
}

/// What was last seen of a Lease, and since when nothing has changed. Clocks of other machines are not believed.
#[derive(Debug, Default)]
struct Seen {
    version: String,
    since: Option<Instant>,
}

impl Seen {
    fn next(&mut self, lease: &Lease, me: &str, now: Instant) -> Next {
        let spec = lease.spec.clone().unwrap_or_default();
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.since.is_none() || version != self.version {
            *self = Self { version, since: Some(now) };
        }
        let holder = spec.holder_identity.unwrap_or_default();
        let life =
            spec.lease_duration_seconds.and_then(|life| u64::try_from(life).ok()).map_or(LIFE, Duration::from_secs);
        let is_over = self.since.is_some_and(|since| now.duration_since(since) > life);
        if holder.is_empty() || holder == me || is_over { Next::Write } else { Next::Wait }
    }
}

impl Client {
    /// Tries for ever to hold a Lease, as `me`; `leads` says whether it does. Never two believe it at once, as far as their clocks
    /// run alike.
    pub async fn lead(&self, name: &ObjectName, me: &str, leads: &watch::Sender<bool>) {
        let api: Api<Lease> = Api::namespaced(self.kube.clone(), &name.namespace);
        let mut seen = Seen::default();
        let mut renewed: Option<Instant> = None;
        let mut failing = false;
        loop {
            let begun = Instant::now();
            let attempt = timeout(GIVE_UP / 2, hold(&api, name, me, &mut seen)).await;
            let problem = match attempt {
                Ok(Ok(true)) => {
                    renewed = Some(begun);
                    None
                }
                Ok(Ok(false)) => {
                    renewed = None;
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the API server does not answer".to_owned()),
            };
            if let Some(problem) = &problem
                && !failing
            {
                warn!(lease = %name, problem, "cannot look after the Lease; trying again");
            }
            failing = problem.is_some();
            let now_leads = renewed.is_some_and(|renewed| renewed.elapsed() < GIVE_UP);
            leads.send_if_modified(|leads| {
                let changed = *leads != now_leads;
                if changed {
                    info!(lease = %name, leads = now_leads, me, "which replica writes has changed");
                }
                *leads = now_leads;
                changed
            });
            sleep_until(begun + RENEW_EVERY).await;
        }
    }
}

/// Takes or renews a Lease, if it may; whether it is ours now.
async fn hold(api: &Api<Lease>, name: &ObjectName, me: &str, seen: &mut Seen) -> Result<bool, kube::Error> {
    let now = MicroTime(Timestamp::now());
    let found = api.get_opt(&name.name).await?;
    let written = match found {
        None => {
            let spec = spec(me, now, None);
            let metadata = ObjectMeta { name: Some(name.name.clone()), ..ObjectMeta::default() };
            api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
        }
        Some(mut lease) => {
            if seen.next(&lease, me, Instant::now()) == Next::Wait {
                return Ok(false);
            }
            lease.spec = Some(spec(me, now, lease.spec.as_ref()));
            api.replace(&name.name, &PostParams::default(), &lease).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        // Somebody else was quicker.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

fn spec(me: &str, now: MicroTime, old: Option<&LeaseSpec>) -> LeaseSpec {
    let held = old.filter(|old| old.holder_identity.as_deref() == Some(me));
    let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(LIFE.as_secs()).ok(),
        acquire_time: held.and_then(|held| held.acquire_time.clone()).or_else(|| Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(transitions + i32::from(old.is_some() && held.is_none())),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
        Lease { metadata, spec: Some(spec(holder, MicroTime(Timestamp::now()), None)) }
    }

    #[test]
    fn a_lease_is_taken_when_it_has_not_changed_for_its_life_and_not_before() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        assert_eq!(seen.next(&lease("other", "1"), "me", start), Next::Wait);
        assert_eq!(seen.next(&lease("other", "1"), "me", start + LIFE), Next::Wait);
        // It was renewed.
        assert_eq!(seen.next(&lease("other", "2"), "me", start + LIFE * 2), Next::Wait);
        assert_eq!(seen.next(&lease("other", "2"), "me", start + LIFE * 3), Next::Wait);
        assert_eq!(seen.next(&lease("other", "2"), "me", start + LIFE * 4), Next::Write);
        assert_eq!(seen.next(&lease("me", "3"), "me", start), Next::Write);
        assert_eq!(seen.next(&lease("", "4"), "me", start), Next::Write);
    }
}
