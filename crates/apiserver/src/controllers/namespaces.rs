//! The end of a namespace: everything in it, then the namespace.

use serde_json::json;

use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::value::{items, set, text};

pub(super) fn end(core: &Core, name: &str) -> Result<(), Failure> {
    let Some(namespace) = core.find("", "namespaces", "", name) else { return Ok(()) };
    if text(&namespace, "status.phase") != "Terminating" || items(&namespace, "spec.finalizers").is_empty() {
        return Ok(());
    }
    let mut left = 0;
    let registry = core.registry();
    for resource in registry.resources.values().filter(|resource| resource.namespaced) {
        let page = core.store.list(&resource.shelf, &format!("{name}/"), "", None);
        for (_, stored) in page.map(|page| page.objects).unwrap_or_default() {
            let object = stored.value();
            let options =
                DeleteOptions { grace_seconds: Some(0).filter(|_| resource.kind != "Pod"), ..DeleteOptions::default() };
            core.delete(resource, name, text(&object, "metadata.name"), &options)?;
        }
        let page = core.store.list(&resource.shelf, &format!("{name}/"), "", None);
        left += page.map_or(0, |page| page.objects.len());
    }
    if left > 0 {
        return Ok(());
    }
    let resource = core.builtin("", "namespaces")?;
    let write = Write { subresource: "finalize".to_owned(), ..Write::by("namespace-controller") };
    core.modify(&resource, "", name, &write, false, |old| {
        let mut new = old.clone();
        set(&mut new, "spec.finalizers", json!([]));
        Ok(new)
    })
    .map(drop)
}
