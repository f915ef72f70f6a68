//! Creates the Tiers that every cluster has, and corrects their priorities. Only the leader writes.

use std::collections::BTreeMap;

use k8s::{Client, RequestError, WatchEvent, WatchFilter};
use reconcile::{Pass, Settings, Target};
use serde_json::json;
use tokio::sync::watch;
use types::antrea::Tier;

use crate::inputs::{Input, Inputs};
use crate::sources::until_served;

/// Name, priority and purpose of each Tier.
const SYSTEM_TIERS: [(&str, i64, &str); 6] = [
    ("emergency", 50, "before all others, for incidents"),
    ("securityops", 100, "for the security team"),
    ("networkops", 150, "for the network team"),
    ("platform", 200, "for the operators of the platform"),
    ("application", 250, "the default, for the owners of applications"),
    ("baseline", 253, "after the NetworkPolicies of Kubernetes"),
];

/// Keeps the system Tiers while this replica leads, as soon as the CRD is installed.
pub(crate) async fn keep(client: Client, leads: watch::Receiver<bool>) {
    until_served::<Tier>(&client).await;
    let tiers = client.watch::<Tier>(&WatchFilter::default());
    let target = SystemTiers { client, priorities: BTreeMap::new(), is_listed: false };
    reconcile::run(target, Inputs::new(tiers, leads), Settings::ON_CHANGE).await;
}

struct SystemTiers {
    client: Client,
    /// The priorities of all Tiers by name.
    priorities: BTreeMap<String, Option<i64>>,
    is_listed: bool,
}

impl SystemTiers {
    fn take(&mut self, event: WatchEvent<Tier>) {
        match event {
            WatchEvent::Applied(tier) => _ = self.priorities.insert(tier.metadata.name, tier.spec.priority),
            WatchEvent::Deleted(name) => _ = self.priorities.remove(&name.name),
            WatchEvent::Synced => self.is_listed = true,
        }
    }
}

impl Target for SystemTiers {
    type Desired = Input<WatchEvent<Tier>>;
    /// The Tier that was written.
    type Change = &'static str;
    type Failure = RequestError;

    fn name(&self) -> &'static str {
        "system Tiers"
    }

    async fn reconcile(
        &mut self,
        Input { events, leads }: Input<WatchEvent<Tier>>,
    ) -> Pass<&'static str, RequestError> {
        events.into_iter().for_each(|event| self.take(event));
        let mut pass = Pass::default();
        if !leads || !self.is_listed {
            return pass;
        }
        for (name, priority, purpose) in SYSTEM_TIERS {
            if self.priorities.get(name) == Some(&Some(priority)) {
                continue;
            }
            let tier = json!({
                "apiVersion": "crd.antrea.io/v1beta1", "kind": "Tier", "metadata": {"name": name},
                "spec": {"priority": priority, "description": format!("[READ-ONLY] {purpose}")},
            });
            match self.client.apply(&tier).await {
                Ok(()) => pass.changes.push(name),
                Err(error) => pass.failures.push(error),
            }
        }
        pass
    }
}
