//! Decoding of objects: the metadata that a watch needs, and the value that is kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kinds::Watched;

/// An object with the metadata that a watch needs.
#[derive(Clone, Debug)]
pub(crate) struct Wire<T> {
    metadata: ObjectMeta,
    pub(crate) object: T,
}

/// Metadata that only the watch needs.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Revision {
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl<'de, T: Watched> Deserialize<'de> for Wire<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Watched> Visitor<'de> for ObjectVisitor<T> {
    type Value = Wire<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", T::KIND)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Wire<T>, A::Error> {
        let mut revision = Revision::default();
        let fields = Fields { fields, is_metadata: false, revision: &mut revision };
        let object = T::deserialize(MapAccessDeserializer::new(fields))?;
        let name = object.object_name();
        let metadata = ObjectMeta {
            name: Some(name.name),
            namespace: Some(name.namespace).filter(|namespace| !namespace.is_empty()),
            resource_version: revision.resource_version,
            annotations: revision.annotations,
            ..ObjectMeta::default()
        };
        Ok(Wire { metadata, object })
    }
}

/// Passes the fields of an object through. The metadata are parsed twice, once for the watch and once for the object; the rest, which
/// may be long, is parsed once.
struct Fields<'a, A> {
    fields: A,
    is_metadata: bool,
    revision: &'a mut Revision,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.fields.next_key::<String>()? else { return Ok(None) };
        self.is_metadata = name == "metadata";
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        if !self.is_metadata {
            return self.fields.next_value_seed(seed);
        }
        let text = self.fields.next_value::<&RawValue>()?;
        *self.revision = serde_json::from_str(text.get()).map_err(A::Error::custom)?;
        seed.deserialize(&mut serde_json::Deserializer::from_str(text.get())).map_err(A::Error::custom)
    }
}

impl<T: Watched> kube::Resource for Wire<T> {
    type DynamicType = ();
    // The caller knows whether the kind is namespaced.
    type Scope = kube::core::DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        T::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        T::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        T::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::Resource as _;
    use types::network_policy::NetworkPolicy;

    use super::*;

    #[test]
    fn object_and_watch_metadata_are_read_in_any_field_order() {
        let metadata = r#""metadata": {"name": "p", "namespace": "x", "uid": "u", "resourceVersion": "7", "annotations": {"a": "b"},
            "managedFields": [{"manager": "me"}]}"#;
        let spec = r#""spec": {"podSelector": {}, "policyTypes": ["Egress"], "metadata": {"resourceVersion": "8"}}"#;
        for text in [format!("{{\"kind\": \"NetworkPolicy\", {metadata}, {spec}}}"), format!("{{{spec}, {metadata}}}")]
        {
            let wire: Wire<NetworkPolicy> = serde_json::from_str(&text).unwrap();
            let meta = wire.meta();
            assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("p"), Some("x")));
            assert_eq!(meta.resource_version.as_deref(), Some("7"));
            assert_eq!(meta.annotations, Some([("a".to_owned(), "b".to_owned())].into()));
            assert_eq!(wire.object.metadata.uid, "u");
            assert_eq!(wire.object.spec.policy_types, ["Egress"]);
            let unknown: Vec<_> = wire.object.spec.unknown.0.iter().collect();
            assert_eq!(unknown, ["metadata"]);
        }
    }

    #[test]
    fn a_bookmark_is_an_object_with_a_revision_and_nothing_else() {
        let text =
            r#"{"kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1", "metadata": {"resourceVersion": "7"}}"#;
        let wire: Wire<NetworkPolicy> = serde_json::from_str(text).unwrap();
        assert_eq!(wire.meta().resource_version.as_deref(), Some("7"));
    }
}
