//! A client of the Kubernetes API.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::Scope;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

/// A client from a kubeconfig. It connects with the first request.
pub(crate) async fn connect(kubeconfig: &Path) -> Result<kube::Client> {
    let what = || format!("the kubeconfig {}", kubeconfig.display());
    let read = Kubeconfig::read_from(kubeconfig).with_context(what)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.with_context(what)?;
    // Proxies of the host cannot reach the lab.
    config.proxy_url = None;
    kube::Client::try_from(config).with_context(what)
}

/// A local copy of all objects of one kind, updated by a watch.
pub(crate) struct Mirror<K> {
    /// Objects by namespace and name.
    pub(crate) objects: BTreeMap<(String, String), K>,
    listed: BTreeMap<(String, String), K>,
    /// Whether the initial sync is complete.
    pub(crate) synced: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), synced: false }
    }
}

impl<K: kube::ResourceExt> Mirror<K> {
    /// Applies an event of the watch.
    pub(crate) fn apply(&mut self, event: Result<Option<Event<K>>, watcher::Error>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Ok(Some(Event::Init)) => self.listed.clear(),
            Ok(Some(Event::InitApply(object))) => drop(self.listed.insert(key(&object), object)),
            Ok(Some(Event::InitDone)) => {
                self.objects = std::mem::take(&mut self.listed);
                self.synced = true;
            }
            Ok(Some(Event::Apply(object))) => drop(self.objects.insert(key(&object), object)),
            Ok(Some(Event::Delete(object))) => drop(self.objects.remove(&key(&object))),
            Ok(None) => {}
            // The watcher lists and watches again after a pause.
            Err(error) => tracing::warn!("watch of {}: {error}", std::any::type_name::<K>()),
        }
    }
}

/// Applies the objects of a YAML text whose kind is wanted.
pub(crate) async fn apply(client: &kube::Client, yaml: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).context("the manifest is not valid YAML")?;
    for object in objects.into_iter().filter(|object| !object.is_null()) {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
        if !wanted(&kind) {
            continue;
        }
        let namespace = word(&object["metadata"]["namespace"]);
        let version = word(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let what = || format!("{kind} {name}");
        let gvk = GroupVersionKind::gvk(group, version, &kind);
        let (resource, capabilities) = kube::discovery::pinned_kind(client, &gvk).await.with_context(what)?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Namespaced if namespace.is_empty() => Api::default_namespaced_with(client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
            Scope::Cluster => Api::all_with(client.clone(), &resource),
        };
        api.patch(&name, &PatchParams::apply("antrea-lab").force(), &Patch::Apply(&object)).await.with_context(what)?;
    }
    Ok(())
}
