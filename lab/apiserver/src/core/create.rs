//! Create: defaults, admission, validation and storage of new objects.

use serde_json::{Value, json};

use super::{Core, Write, Written};
use crate::failure::{Failure, FieldError};
use crate::managed::{self, Writer};
use crate::moment;
use crate::resources::Resource;
use crate::schema::normalise;
use crate::store::Expect;
use crate::validate;
use crate::value::{self, at, default_to, items, set, text};

impl Core {
    pub(crate) fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        write: &Write,
    ) -> Result<Written, Failure> {
        let warnings = self.accept(resource, namespace, None, &mut object, write)?;
        Ok(self.insert(resource, namespace, object, write, true)?.warned(warnings))
    }

    /// Stores a new, decoded object; `record` says whether the writer becomes the owner of its fields.
    pub(super) fn insert(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        write: &Write,
        record: bool,
    ) -> Result<Written, Failure> {
        let generated = text(&object, "metadata.name").is_empty() && !text(&object, "metadata.generateName").is_empty();
        if generated {
            let prefix: String = text(&object, "metadata.generateName").chars().take(58).collect();
            set(&mut object, "metadata.name", format!("{prefix}{}", moment::suffix(5)));
        }
        let name = text(&object, "metadata.name").to_owned();
        self.check_namespace(resource, namespace, &name)?;
        if !text(&object, "metadata.resourceVersion").is_empty() {
            return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        for key in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            value::remove(&mut object, &format!("metadata.{key}"));
        }
        if resource.has("status") && resource.kind != "Node" {
            value::remove(&mut object, "status");
        }
        set(&mut object, "metadata.uid", moment::uid());
        set(&mut object, "metadata.creationTimestamp", moment::now());
        self.complete(resource, &mut object);
        if record {
            let api_version = resource.api_version();
            let writer = Writer { manager: &write.manager, api_version: &api_version, subresource: "" };
            managed::record(resource.schema(), &resource.shape, &Value::Null, &mut object, writer);
        }
        if resource.generation {
            set(&mut object, "metadata.generation", 1);
        }
        let is_changed = self.admit_new(resource, namespace, &mut object)?;
        let mut errors = Vec::new();
        check(resource, &object, "", &mut errors);
        if !errors.is_empty() {
            return Err(Failure::invalid(resource.kept_group(), &resource.kind, &name, &errors));
        }
        let claim = self.allocate(resource, &mut object, None, write.dry_run)?;
        self.finish(resource, &mut object, is_changed);
        let key = resource.key(namespace, &name);
        let written = |object: Value| Written::new(resource, object, true);
        if write.dry_run {
            return match self.store.get(&resource.group_resource, &key) {
                Some(_) => Err(Failure::already_exists(resource.id(), &name)),
                None => Ok(written(object)),
            };
        }
        match self.store.put(&resource.group_resource, &key, &mut object, Expect::Absent) {
            Ok(stored) => {
                claim.keep();
                self.after(resource, Some(&object));
                Ok(written(self.seen_as(resource, object)).kept(resource, stored))
            }
            Err(_) if generated => {
                let why = "the server was not able to generate a unique name for the object";
                Err(Failure::already_exists(resource.id(), &name).with_cause("", why, ""))
            }
            Err(_) => Err(Failure::already_exists(resource.id(), &name)),
        }
    }

    /// Fills in defaults and normalises the object.
    pub(super) fn complete(&self, resource: &Resource, object: &mut Value) {
        if let Some(custom) = &resource.custom {
            crate::custom::defaults(&custom.given, object);
            // Metadata has a built-in type in custom objects too.
            let meta = crate::schema::Schema::builtin().named("meta.v1.ObjectMeta");
            if let Some(metadata) = object.get_mut("metadata") {
                normalise(crate::schema::Schema::builtin(), &meta, metadata);
            }
        } else {
            // Null counts as missing for defaults.
            normalise(resource.schema(), &resource.shape, object);
            (resource.rules.defaults)(object);
            normalise(resource.schema(), &resource.shape, object);
        }
    }

    /// Normalises an object for storage; `is_changed` says whether it was changed after it was completed.
    pub(super) fn finish(&self, resource: &Resource, object: &mut Value, is_changed: bool) {
        match (&resource.custom, resource.alias) {
            (Some(custom), _) => set(object, "apiVersion", custom.stored.as_str()),
            (None, Some(alias)) => alias.keep(object),
            (None, None) if is_changed => normalise(resource.schema(), &resource.shape, object),
            (None, None) => {}
        }
    }

    /// The object in the version of the requested resource.
    pub(crate) fn seen_as(&self, resource: &Resource, mut object: Value) -> Value {
        match resource.alias {
            Some(alias) => alias.show(&mut object, &resource.api_version()),
            None if resource.custom.is_some() => set(&mut object, "apiVersion", resource.api_version()),
            None => {}
        }
        object
    }

    /// Copies the topology labels of a Pod's Node to the Pod.
    pub(crate) fn place(&self, pod: &mut Value) {
        let Some(node) = self.find("", "nodes", "", text(pod, "spec.nodeName")) else { return };
        for key in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"] {
            if let Some(label) = at(&node, "metadata.labels").get(key) {
                let mut labels = at(pod, "metadata.labels").clone();
                value::object(&mut labels).insert(key.to_owned(), label.clone());
                set(pod, "metadata.labels", labels);
            }
        }
    }

    /// Admission of new objects: adds and rejects. Returns whether it may change objects of the kind.
    fn admit_new(&self, resource: &Resource, namespace: &str, object: &mut Value) -> Result<bool, Failure> {
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Namespace") => {
                default_to(object, "spec.finalizers", json!(["kubernetes"]));
                set(object, "status.phase", "Active");
            }
            ("", "Pod") => {
                default_to(object, "spec.serviceAccountName", "default");
                let account = text(object, "spec.serviceAccountName").to_owned();
                set(object, "spec.serviceAccount", account.as_str());
                if self.find("", "serviceaccounts", namespace, &account).is_none() {
                    let why = format!(
                        "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
                    );
                    return Err(Failure::forbidden(resource.id(), text(object, "metadata.name"), &why));
                }
                self.place(object);
                token_volume(object);
                let class = text(object, "spec.priorityClassName");
                let Some(priority) = priority(class) else {
                    let why = format!("no PriorityClass with name {class} was found");
                    return Err(Failure::forbidden(resource.id(), text(object, "metadata.name"), &why));
                };
                set(object, "spec.priority", priority);
                default_to(object, "spec.preemptionPolicy", "PreemptLowerPriority");
                tolerations(object);
                set(object, "status", json!({"phase": "Pending", "qosClass": quality(object)}));
            }
            ("", "Node") => {
                let mut taints = items(object, "spec.taints").to_vec();
                if !taints.iter().any(|taint| text(taint, "key") == NOT_READY) {
                    taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
                }
                set(object, "spec.taints", taints);
            }
            ("apps", "DaemonSet") => {
                let mut annotations = at(object, "metadata.annotations").clone();
                value::object(&mut annotations).insert("deprecated.daemonset.template.generation".into(), "1".into());
                set(object, "metadata.annotations", annotations);
            }
            ("", "Service") => crate::allocate::list_of_one(object),
            ("apiregistration.k8s.io", _) => set(object, "status", super::registered::first_status(object)),
            ("apiextensions.k8s.io", _) => set(object, "status", crate::custom::new_status(object)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The initial taint, until a Node reports ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The priority of a class: the two built-in ones, and 0 for none.
fn priority(class: &str) -> Option<i64> {
    match class {
        "" => Some(0),
        "system-cluster-critical" => Some(2_000_000_000),
        "system-node-critical" => Some(2_000_001_000),
        _ => None,
    }
}

/// Mount path of the token of a Pod's ServiceAccount.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Adds the volume with the ServiceAccount's token, unless the Pod has one or opts out.
fn token_volume(pod: &mut Value) {
    let mounts =
        |container: &Value| items(container, "volumeMounts").iter().any(|mount| text(mount, "mountPath") == TOKEN);
    let all = || items(pod, "spec.containers").iter().chain(items(pod, "spec.initContainers"));
    if at(pod, "spec.automountServiceAccountToken") == false || all().all(mounts) {
        return;
    }
    let name = format!("kube-api-access-{}", moment::suffix(5));
    let field = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    let sources = json!([
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [field]}},
    ]);
    for list in ["spec.containers", "spec.initContainers"] {
        for container in value::items_mut(pod, list) {
            if !mounts(container) {
                let mut own = items(container, "volumeMounts").to_vec();
                own.push(json!({"name": name, "mountPath": TOKEN, "readOnly": true}));
                set(container, "volumeMounts", own);
            }
        }
    }
    let mut volumes = items(pod, "spec.volumes").to_vec();
    volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": sources}}));
    set(pod, "spec.volumes", volumes);
}

/// The default tolerations: a Pod stays on a failed Node for five minutes.
pub(super) fn tolerations(pod: &mut Value) {
    let mut all = items(pod, "spec.tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = all.iter().any(|toleration| {
            let (of, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (of == key || of.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            all.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    set(pod, "spec.tolerations", all);
}

/// The QoS class of a Pod.
fn quality(pod: &Value) -> &'static str {
    let containers = || items(pod, "spec.containers").iter().chain(items(pod, "spec.initContainers"));
    let amounts = |container: &Value, kind: &str| {
        at(container, &format!("resources.{kind}")).as_object().cloned().unwrap_or_default()
    };
    if containers()
        .all(|container| amounts(container, "requests").is_empty() && amounts(container, "limits").is_empty())
    {
        return "BestEffort";
    }
    let exact = containers().all(|container| {
        let (limits, requests) = (amounts(container, "limits"), amounts(container, "requests"));
        ["cpu", "memory"].iter().all(|name| limits.contains_key(*name) && limits.get(*name) == requests.get(*name))
    });
    if exact { "Guaranteed" } else { "Burstable" }
}

/// Runs all validations of an object.
pub(super) fn check(resource: &Resource, object: &Value, subresource: &str, errors: &mut Vec<FieldError>) {
    validate::metadata(object, resource.namespaced, resource.names, errors);
    match &resource.custom {
        Some(custom) => crate::custom::validate(custom, object, subresource, errors),
        None => (resource.rules.validate)(object, errors),
    }
}
