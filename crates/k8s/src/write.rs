//! Writes: Secrets, server-side apply, Pod CIDRs and Events.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource, Node, ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use types::ObjectName;

use crate::client::{Client, RequestError};

/// The content of a Secret, with its resource version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretContent {
    /// The decoded values by key.
    pub data: BTreeMap<String, Vec<u8>>,
    version: String,
}

/// The result of a conditional write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The object was written.
    Written,
    /// The object has changed since it was read; nothing was written.
    Conflict,
}

/// A warning Event about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// Kind and apiVersion of the object.
    pub of: (&'a str, &'a str),
    /// The name of the object.
    pub name: &'a ObjectName,
    /// The uid of the object.
    pub uid: &'a str,
    /// The reason in CamelCase.
    pub reason: &'a str,
    /// The message for the operator.
    pub message: &'a str,
}

impl Client {
    /// Reads a Secret, if it exists.
    pub async fn secret(&self, name: &ObjectName) -> Result<Option<SecretContent>, RequestError> {
        let found = self.in_time(self.secrets(name).get_opt(&name.name)).await;
        let found = found.map_err(|error| RequestError::new("Secret", &name.to_string(), error))?;
        Ok(found.map(|secret| SecretContent {
            data: secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect(),
            version: secret.metadata.resource_version.unwrap_or_default(),
        }))
    }

    /// Writes keys of a Secret, if it has not changed since it was read.
    pub async fn write_secret(
        &self,
        name: &ObjectName,
        old: &SecretContent,
        data: BTreeMap<String, Vec<u8>>,
    ) -> Result<Outcome, RequestError> {
        let data: BTreeMap<_, _> = data.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
        let patch = json!({"metadata": {"resourceVersion": old.version}, "data": data});
        let api = self.secrets(name);
        let written = self.in_time(api.patch(&name.name, &PatchParams::default(), &Patch::Merge(patch))).await;
        match written {
            Ok(_) => Ok(Outcome::Written),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Conflict),
            Err(error) => Err(RequestError::new("Secret", &name.to_string(), error)),
        }
    }

    fn secrets(&self, name: &ObjectName) -> Api<Secret> {
        Api::namespaced(self.kube.clone(), &name.namespace)
    }

    /// Server-side apply of an object of any kind, overriding other field managers.
    pub async fn apply(&self, object: &Value) -> Result<(), RequestError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            "" => Api::all_with(self.kube.clone(), &resource),
            namespace => Api::namespaced_with(self.kube.clone(), namespace, &resource),
        };
        let how = PatchParams::apply("antrea-controller").force();
        let applied = self.in_time(api.patch(name, &how, &Patch::Apply(object))).await;
        applied.map(drop).map_err(|error| RequestError::new("object", &format!("{kind} {namespace}/{name}"), error))
    }

    /// Sets the Pod CIDRs of a Node. The API server rejects a change of existing ones.
    pub async fn set_pod_cidrs(&self, node: &str, cidrs: &[String]) -> Result<(), RequestError> {
        let api: Api<Node> = Api::all(self.kube.clone());
        let patch = json!({"spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs}});
        let patched = self.in_time(api.patch(node, &PatchParams::default(), &Patch::Strategic(patch))).await;
        patched.map(drop).map_err(|error| RequestError::new("Node", node, error))
    }

    /// Writes a warning Event.
    pub async fn warn(&self, event: &Event<'_>) -> Result<(), RequestError> {
        // Events of cluster-scoped objects are in namespace default.
        let namespace = if event.name.namespace.is_empty() { "default" } else { &event.name.namespace };
        let now = Timestamp::now();
        let name = format!("{}.{:x}", event.name.name, now.as_nanosecond());
        let component = "antrea-controller".to_owned();
        let written = KubeEvent {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            involved_object: ObjectReference {
                kind: Some(event.of.0.to_owned()),
                api_version: Some(event.of.1.to_owned()),
                name: Some(event.name.name.clone()),
                namespace: Some(event.name.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                uid: Some(event.uid.to_owned()),
                ..ObjectReference::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some(event.reason.to_owned()),
            message: Some(event.message.chars().take(1000).collect()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            event_time: None::<MicroTime>,
            source: Some(EventSource { component: Some(component.clone()), host: None }),
            reporting_component: Some(component),
            ..KubeEvent::default()
        };
        let api: Api<KubeEvent> = Api::namespaced(self.kube.clone(), namespace);
        let created = self.in_time(api.create(&PostParams::default(), &written)).await;
        created.map(drop).map_err(|error| RequestError::new("Event", &event.name.to_string(), error))
    }
}
