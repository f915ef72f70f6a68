//! The table of resources: each resource is a row.

use std::sync::Arc;

use serde_json::Value;

use crate::custom::Custom;
use crate::failure::Of;
use crate::names::NameRule;
use crate::schema::{Schema, Shape};
use crate::table::columns::Column;
use crate::validate::Errors;

mod alias;
mod rows;
pub(crate) use alias::Alias;
pub(crate) use rows::{CUSTOM_RULES, QUESTIONS, ROWS};

/// Defaults, validation and other properties of a resource.
pub(crate) struct Rules {
    pub(crate) defaults: fn(&mut Value),
    pub(crate) validate: fn(&Value, &mut Errors),
    /// Validates a change: the new object, then the old one.
    pub(crate) validate_update: fn(&Value, &Value, &mut Errors),
    /// Warnings about a valid object.
    pub(crate) warnings: fn(&Value) -> Vec<String>,
    pub(crate) columns: &'static [Column],
}

/// A row of the table.
pub(crate) struct Row {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    /// `status` and other subresources.
    subresources: &'static [&'static str],
    names: NameRule,
    /// The package of its type in the schema.
    package: &'static str,
    /// Whether changes of the spec increment `metadata.generation`.
    generation: bool,
    /// Paths for field selectors, besides name and namespace.
    fields: &'static [&'static str],
    /// Whether an update may omit `resourceVersion`.
    unconditional: bool,
    /// Whether a delete returns the object instead of a `Status`.
    returns_deleted: bool,
    /// Set if the objects are stored as those of another resource.
    alias: Option<&'static Alias>,
    rules: Rules,
}

/// A resource with stored objects, built in or defined by a CustomResourceDefinition.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) subresources: Vec<String>,
    pub(crate) names: NameRule,
    pub(crate) shape: Shape,
    pub(crate) generation: bool,
    pub(crate) fields: Vec<String>,
    pub(crate) unconditional: bool,
    pub(crate) returns_deleted: bool,
    pub(crate) rules: &'static Rules,
    /// Set if the objects are stored as those of another resource.
    pub(crate) alias: Option<&'static Alias>,
    /// The name under which the store has its objects.
    pub(crate) group_resource: Arc<str>,
    /// Set for resources of a CustomResourceDefinition.
    pub(crate) custom: Option<Arc<Custom>>,
}

impl Resource {
    pub(crate) fn of(row: &'static Row) -> Self {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Self {
            group: row.group.to_owned(),
            version: "v1".to_owned(),
            plural: row.plural.to_owned(),
            singular: row.kind.to_lowercase(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            short: own(row.short),
            categories: own(row.categories),
            namespaced: row.namespaced,
            subresources: own(row.subresources),
            names: row.names,
            shape: Schema::builtin().named(&format!("{}.{}", row.package, row.kind)),
            generation: row.generation,
            fields: own(row.fields),
            unconditional: row.unconditional,
            returns_deleted: row.returns_deleted,
            rules: &row.rules,
            alias: row.alias,
            group_resource: row.alias.map_or_else(
                || group_resource(row.group, row.plural),
                |alias| group_resource(alias.group, alias.plural),
            ),
            custom: None,
        }
    }

    /// The schema to which its shape refers.
    pub(crate) fn schema(&self) -> &Schema {
        match &self.custom {
            Some(custom) => &custom.schema,
            None => Schema::builtin(),
        }
    }

    /// Whether responses are exactly the stored bytes.
    pub(crate) fn as_kept(&self) -> bool {
        self.custom.is_none() && self.alias.is_none()
    }

    /// The group for messages: that of the stored objects.
    pub(crate) fn kept_group(&self) -> &str {
        self.alias.map_or(&self.group, |alias| alias.group)
    }

    /// Group and plural name, for messages.
    pub(crate) fn id(&self) -> Of<'_> {
        Of { group: self.kept_group(), resource: &self.plural }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }

    /// Whether a field selector may use the path.
    pub(crate) fn selectable(&self, path: &str) -> bool {
        path == "metadata.name"
            || (path == "metadata.namespace" && self.namespaced)
            || self.fields.iter().any(|field| field == path)
    }

    /// The key of an object in the store.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// The name under which the store has the objects of a resource.
pub(crate) fn group_resource(group: &str, plural: &str) -> Arc<str> {
    format!("{group}/{plural}").into()
}
