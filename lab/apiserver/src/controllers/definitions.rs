//! Deletes the objects of a CustomResourceDefinition, then the definition.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::{Core, DeleteOptions, Write};
use crate::custom::CLEANUP;
use crate::failure::Failure;
use crate::resources::Resource;
use crate::value::{at, items, set, text};

/// How long a resource is served after its last object was deleted, so that watchers receive the deletions.
const LINGER: Duration = Duration::from_secs(1);
const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Finalizes definitions that are marked for deletion, until the server stops.
pub(crate) async fn run(core: Arc<Core>, mut ending: watch::Receiver<bool>) {
    let mut changes = core.store.subscribe(&crate::resources::group_resource(GROUP, PLURAL));
    loop {
        changes.mark_unchanged();
        let ended: Vec<_> = core.all(GROUP, PLURAL, "").into_iter().filter(ends).collect();
        let clear: Vec<_> = ended.iter().filter(|definition| clear(&core, definition) == 0).collect();
        if !ended.is_empty() {
            let heard = Instant::now() + LINGER;
            tokio::select! {
                () = tokio::time::sleep_until(heard) => {}
                () = crate::server::ended(&mut ending) => return,
            }
        }
        for definition in clear {
            if let Err(failure) = release(&core, text(definition, "metadata.name")) {
                tracing::debug!(%failure, "cannot finalize a CustomResourceDefinition, retrying");
            }
        }
        if ended.is_empty() {
            tokio::select! {
                result = changes.changed() => if result.is_err() { return },
                () = crate::server::ended(&mut ending) => return,
            }
        }
    }
}

/// Whether a definition is marked for deletion and has the finalizer of this controller.
fn ends(definition: &Value) -> bool {
    let held = items(definition, "metadata.finalizers").iter().any(|held| held == CLEANUP);
    held && !at(definition, "metadata.deletionTimestamp").is_null()
}

/// Deletes the objects of a definition. Returns the number of those that wait for other finalizers.
fn clear(core: &Core, definition: &Value) -> usize {
    let registry = core.registry();
    let (group, plural) = (text(definition, "spec.group"), text(definition, "spec.names.plural"));
    let of = |resource: &&Arc<Resource>| resource.group == group && resource.plural == plural;
    let Some(resource) = registry.resources.values().find(of) else { return 0 };
    let page = core.store.list(&resource.group_resource, "", "", None);
    for (_, stored) in page.map(|page| page.objects).unwrap_or_default() {
        let object = stored.value();
        let (namespace, name) = (text(&object, "metadata.namespace"), text(&object, "metadata.name"));
        if let Err(failure) = core.delete(resource, namespace, name, &DeleteOptions::default()) {
            tracing::debug!(%failure, "cannot delete a custom object, retrying");
        }
    }
    core.store.count(&resource.group_resource)
}

/// Removes the finalizer of a definition.
fn release(core: &Core, name: &str) -> Result<(), Failure> {
    let definitions = core.builtin(GROUP, PLURAL)?;
    let write = Write::by("kube-apiserver");
    let written = core.modify(&definitions, "", name, &write, false, |old| {
        let mut new = old.clone();
        let left: Vec<_> = items(old, "metadata.finalizers").iter().filter(|held| **held != CLEANUP).cloned().collect();
        set(&mut new, "metadata.finalizers", left);
        Ok(new)
    });
    match written {
        Err(failure) if failure.code == 404 => Ok(()),
        result => result.map(drop),
    }
}
