//! Deletes the objects of a CustomResourceDefinition, then the definition.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::garbage::remove_finalizer;
use crate::core::{Core, DeleteOptions, Write};
use crate::custom::CLEANUP;
use crate::failure::Failure;
use crate::objects::{CustomResourceDefinition, Kind, Metadata, Object};
use crate::resources::Resource;

/// How long a resource is served after its last object was deleted, so that watchers receive the deletions.
const LINGER: Duration = Duration::from_secs(1);
const GROUP: &str = CustomResourceDefinition::GROUP;
const PLURAL: &str = CustomResourceDefinition::PLURAL;

/// Finalizes definitions that are marked for deletion, until the server stops.
pub(crate) async fn run(core: Arc<Core>, mut ending: watch::Receiver<bool>) {
    let mut changes = core.store.subscribe(&crate::resources::group_resource(GROUP, PLURAL));
    loop {
        changes.mark_unchanged();
        let ended: Vec<_> = core.read_all().into_iter().filter(ends).collect();
        let clear: Vec<_> = ended.iter().filter(|definition| clear(&core, definition) == 0).collect();
        if !ended.is_empty() {
            let heard = Instant::now() + LINGER;
            tokio::select! {
                () = tokio::time::sleep_until(heard) => {}
                () = crate::server::ended(&mut ending) => return,
            }
        }
        for definition in clear {
            if let Err(failure) = release(&core, &definition.metadata) {
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
fn ends(definition: &CustomResourceDefinition) -> bool {
    let metadata = &definition.metadata;
    metadata.is_terminating() && metadata.finalizers.iter().any(|finalizer| finalizer == CLEANUP)
}

/// Deletes the objects of a definition. Returns the number of those that wait for other finalizers.
fn clear(core: &Core, definition: &CustomResourceDefinition) -> usize {
    let registry = core.registry();
    let spec = &definition.spec;
    let of = |resource: &&Arc<Resource>| resource.group == spec.group && resource.plural == spec.names.plural;
    let Some(resource) = registry.resources.values().find(of) else { return 0 };
    let page = core.store.list(&resource.group_resource, "", "", None);
    for (_, stored) in page.map(|page| page.objects).unwrap_or_default() {
        let Object { metadata } = stored.read().unwrap_or_default();
        if let Err(failure) = core.delete(resource, &metadata.namespace, &metadata.name, &DeleteOptions::default()) {
            tracing::debug!(%failure, "cannot delete a custom object, retrying");
        }
    }
    core.store.count(&resource.group_resource)
}

/// Removes the finalizer of a definition.
fn release(core: &Core, definition: &Metadata) -> Result<(), Failure> {
    let definitions = core.builtin(GROUP, PLURAL)?;
    match remove_finalizer(core, &definitions, definition, CLEANUP, &Write::by("kube-apiserver")) {
        Err(failure) if failure.code == 404 => Ok(()),
        result => result,
    }
}
