//! Deletes the contents of a namespace, then the namespace.

use std::collections::BTreeMap;

use serde_json::json;

use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::objects::{Condition, Namespace, Object, read};
use crate::value::set;

/// Remaining objects in a namespace: their number by resource, and by finalizer.
#[derive(Default)]
struct Remaining {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

pub(super) fn end(core: &Core, name: &str) -> Result<(), Failure> {
    let Some(namespace) = core.read::<Namespace>("", name) else { return Ok(()) };
    if !namespace.is_terminating() || namespace.spec.finalizers.is_empty() {
        return Ok(());
    }
    let left = empty(core, name)?;
    let resource = core.builtin("", "namespaces")?;
    if !left.resources.is_empty() {
        let write = Write::by("kube-controller-manager").status();
        let written = core.modify(&resource, "", name, &write, true, |old| {
            let mut new = old.clone();
            set(&mut new, "status.conditions", json!(conditions(&read(old), &left)));
            Ok(new)
        });
        return written.map(drop);
    }
    let write = Write { subresource: "finalize".to_owned(), ..Write::by("namespace-controller") };
    core.modify(&resource, "", name, &write, false, |old| {
        let mut new = old.clone();
        set(&mut new, "spec.finalizers", json!([]));
        Ok(new)
    })
    .map(drop)
}

/// Deletes everything in a namespace. Returns the objects that remain for now.
fn empty(core: &Core, namespace: &str) -> Result<Remaining, Failure> {
    let mut left = Remaining::default();
    let prefix = format!("{namespace}/");
    let registry = core.registry();
    let mut group_resources = Vec::new();
    for resource in registry.resources.values().filter(|resource| resource.namespaced) {
        // Versions of a resource share their objects.
        if group_resources.contains(&&resource.group_resource) {
            continue;
        }
        group_resources.push(&resource.group_resource);
        let page = core.store.list(&resource.group_resource, &prefix, "", None);
        for (_, stored) in page.map(|page| page.objects).unwrap_or_default() {
            let Object { metadata } = stored.read().unwrap_or_default();
            match core.delete(resource, namespace, &metadata.name, &DeleteOptions::default()) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        let page = core.store.list(&resource.group_resource, &prefix, "", None);
        for (_, stored) in page.map(|page| page.objects).unwrap_or_default() {
            *left.resources.entry(format!("{}.{}", resource.plural, resource.group)).or_default() += 1;
            let Object { metadata } = stored.read().unwrap_or_default();
            for finalizer in metadata.finalizers {
                *left.finalizers.entry(finalizer).or_default() += 1;
            }
        }
    }
    Ok(left)
}

/// The conditions of a namespace that is being terminated, in the words of the real server.
fn conditions(namespace: &Namespace, left: &Remaining) -> Vec<Condition> {
    let list = |counts: &BTreeMap<String, usize>, word: &str| {
        let entries: Vec<_> =
            counts.iter().map(|(name, count)| format!("{name} {word} {count} resource instances")).collect();
        entries.join(", ")
    };
    let remaining = format!("Some resources are remaining: {}", list(&left.resources, "has"));
    let held = format!("Some content in the namespace has finalizers remaining: {}", list(&left.finalizers, "in"));
    let finalizers = match left.finalizers.is_empty() {
        true => (false, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        false => (true, "SomeFinalizersRemain", held.as_str()),
    };
    let all = [
        ("NamespaceDeletionDiscoveryFailure", (false, "ResourcesDiscovered", "All resources successfully discovered")),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            (false, "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            (false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        ("NamespaceContentRemaining", (true, "SomeResourcesRemain", remaining.as_str())),
        ("NamespaceFinalizersRemaining", finalizers),
    ];
    let condition = |(kind, (holds, reason, message)): (&str, (bool, &str, &str))| {
        let status = if holds { "True" } else { "False" };
        let before = Condition::find(&namespace.status.conditions, kind).filter(|before| before.status == status);
        let since = before.and_then(|before| before.last_transition_time.clone());
        Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Some(since.unwrap_or_else(crate::moment::now)),
            ..Condition::default()
        }
    };
    all.map(condition).to_vec()
}
