//! The Kubernetes API, as a client.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::Scope;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;

/// A client with what a kubeconfig says; no connection is made yet.
pub(crate) async fn connect(kubeconfig: &Path) -> Result<kube::Client> {
    let what = || format!("the kubeconfig {}", kubeconfig.display());
    let read = Kubeconfig::read_from(kubeconfig).with_context(what)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.with_context(what)?;
    // The machine's proxies lead out of it.
    config.proxy_url = None;
    kube::Client::try_from(config).with_context(what)
}

/// The objects of one kind, as a watch tells of them.
pub(crate) struct Mirror<K> {
    /// By namespace and name.
    pub(crate) objects: BTreeMap<(String, String), K>,
    listed: BTreeMap<(String, String), K>,
    /// Whether all are there that the API had when the watch began.
    pub(crate) synced: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), synced: false }
    }
}

impl<K: kube::ResourceExt> Mirror<K> {
    /// Takes in what a watch says.
    pub(crate) fn take(&mut self, event: Result<Option<Event<K>>, watcher::Error>) {
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
            // The watch begins anew by itself, after a pause.
            Err(error) => tracing::warn!("the watch of {}: {error}", std::any::type_name::<K>()),
        }
    }
}

/// Brings about what the documents of a YAML text say, as far as their kinds are wanted.
pub(crate) async fn apply(client: &kube::Client, yaml: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).context("the manifest is no YAML")?;
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
