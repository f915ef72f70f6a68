//! Resources that CustomResourceDefinitions define.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::names::NameRule;
use crate::resources::{CUSTOM_RULES, Resource, group_resource};
use crate::schema::Schema;
use crate::value::{at, items, text};

mod defaults;
mod definition;
mod shape;
mod structural;
mod validate;
pub(crate) use defaults::defaults;
pub(crate) use definition::{CLEANUP, definition, new_status, status};
pub(crate) use validate::validate;

/// A version of a custom resource.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) schema: Schema,
    /// The structural schema of the definition, as JSON.
    pub(crate) given: Value,
    pub(crate) columns: Vec<Value>,
    /// The version in which objects are stored.
    pub(crate) stored: String,
    /// Paths of the scale subresource.
    pub(crate) scale: Value,
}

/// The resources of a definition, one for each served version.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let spec = at(definition, "spec");
    let (group, plural) = (text(spec, "group"), text(spec, "names.plural"));
    let versions = items(spec, "versions");
    let stored = versions
        .iter()
        .find(|version| at(version, "storage") == true)
        .map(|version| text(version, "name"))
        .unwrap_or_default();
    let stored = if group.is_empty() { stored.to_owned() } else { format!("{group}/{stored}") };
    let texts = |path: &str| items(spec, path).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let served = versions.iter().filter(|version| at(version, "served") == true);
    served
        .map(|version| {
            let given = at(version, "schema.openAPIV3Schema").clone();
            let (schema, shape) = shape::build(&given);
            let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
            let columns = match items(version, "additionalPrinterColumns") {
                [] => vec![age],
                columns => columns.to_vec(),
            };
            let mut subresources = Vec::new();
            let scale = at(version, "subresources.scale").clone();
            if !at(version, "subresources.status").is_null() {
                subresources.push("status".to_owned());
            }
            if !scale.is_null() {
                subresources.push("scale".to_owned());
            }
            let paths = items(version, "selectableFields")
                .iter()
                .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned());
            Resource {
                group: group.to_owned(),
                version: text(version, "name").to_owned(),
                plural: plural.to_owned(),
                singular: text(spec, "names.singular").to_owned(),
                kind: text(spec, "names.kind").to_owned(),
                list_kind: text(spec, "names.listKind").to_owned(),
                short: texts("names.shortNames"),
                categories: texts("names.categories"),
                namespaced: text(spec, "scope") == "Namespaced",
                subresources,
                names: NameRule::Subdomain,
                shape,
                generation: true,
                fields: paths.collect(),
                unconditional: false,
                returns_deleted: false,
                rules: &CUSTOM_RULES,
                alias: None,
                group_resource: group_resource(group, plural),
                custom: Some(Arc::new(Custom { schema, given, columns, stored: stored.clone(), scale })),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
