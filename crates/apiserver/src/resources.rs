//! The table of resources: a resource is a row in it.

use std::sync::Arc;

use serde_json::Value;

use crate::custom::Custom;
use crate::failure::Of;
use crate::names::NameRule;
use crate::schema::{Schema, Shape};
use crate::table::columns::Column;
use crate::validate::Errors;

mod rows;
mod twin;
pub(crate) use rows::{CUSTOM_RULES, QUESTIONS, ROWS};
pub(crate) use twin::Twin;

/// What is particular about a resource, beyond its names.
pub(crate) struct Rules {
    pub(crate) defaults: fn(&mut Value),
    pub(crate) validate: fn(&Value, &mut Errors),
    /// Checks a change: the new object, then the old one.
    pub(crate) validate_update: fn(&Value, &Value, &mut Errors),
    /// What is said of an object that is good.
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
    /// `status`, and what else is below an object.
    subresources: &'static [&'static str],
    names: NameRule,
    /// The prefix of its type in the schema.
    package: &'static str,
    /// Counts the changes of what is wanted.
    generation: bool,
    /// Paths for field selectors, besides name and namespace.
    fields: &'static [&'static str],
    /// An update may leave out the version that it is about.
    unconditional: bool,
    /// A delete answers with the object instead of a `Status`.
    returns_deleted: bool,
    /// The resource whose objects these are, if they are not its own.
    twin: Option<&'static Twin>,
    rules: Rules,
}

/// A resource that objects can be kept of, built in or defined by a CustomResourceDefinition.
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
    /// The resource whose objects these are, if they are not its own.
    pub(crate) twin: Option<&'static Twin>,
    /// Where its objects are kept.
    pub(crate) shelf: Arc<str>,
    /// What a CustomResourceDefinition says of it.
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
            twin: row.twin,
            shelf: row.twin.map_or_else(|| shelf(row.group, row.plural), |twin| shelf(twin.group, twin.plural)),
            custom: None,
        }
    }

    /// The schema that its shape refers to.
    pub(crate) fn schema(&self) -> &Schema {
        match &self.custom {
            Some(custom) => &custom.schema,
            None => Schema::builtin(),
        }
    }

    /// Whether objects are answered as they are kept.
    pub(crate) fn as_kept(&self) -> bool {
        self.custom.is_none() && self.twin.is_none()
    }

    /// The group that messages name: that of what is kept.
    pub(crate) fn kept_group(&self) -> &str {
        self.twin.map_or(&self.group, |twin| twin.group)
    }

    /// For messages.
    pub(crate) fn id(&self) -> Of<'_> {
        Of { group: self.kept_group(), resource: &self.plural }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }

    /// Whether objects can be selected by the field.
    pub(crate) fn selectable(&self, path: &str) -> bool {
        path == "metadata.name"
            || (path == "metadata.namespace" && self.namespaced)
            || self.fields.iter().any(|field| field == path)
    }

    /// The key of an object on the shelf.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// The name of the shelf of a resource.
pub(crate) fn shelf(group: &str, plural: &str) -> Arc<str> {
    format!("{group}/{plural}").into()
}
