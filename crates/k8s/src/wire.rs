//! An object on its way in: what the protocol needs of it, and what is kept.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kinds::Watched;

/// An object with the metadata that a watch goes by.
#[derive(Clone, Debug)]
pub(crate) struct Wire<T> {
    metadata: ObjectMeta,
    pub(crate) object: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revision {
    #[serde(default)]
    metadata: RevisionMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RevisionMeta {
    resource_version: Option<String>,
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl<'de, T: Watched> Deserialize<'de> for Wire<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Read twice from the same text, so that neither side has to know the other's fields.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let Revision { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let object: T = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let name = object.object_name();
        let metadata = ObjectMeta {
            name: Some(name.name),
            namespace: Some(name.namespace).filter(|namespace| !namespace.is_empty()),
            resource_version: metadata.resource_version,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, object })
    }
}

impl<T: Watched> kube::Resource for Wire<T> {
    type DynamicType = ();
    // Whether it is in a namespace is the caller's to know.
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
