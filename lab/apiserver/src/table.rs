//! Objects as a `Table`, for `kubectl get`.

use serde_json::{Value, json};

use crate::resources::Resource;
use crate::value::{self, at, text};

pub(crate) mod columns;
mod duration;
pub(crate) use duration::age;

/// How much of the object each row contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

/// A table of objects; `metadata` is that of the list.
pub(crate) fn table(resource: &Resource, objects: &[Value], metadata: Value, include: Include, headers: bool) -> Value {
    let rows: Vec<_> = objects.iter().map(|object| row(resource, object, include)).collect();
    // Resources of the apiextensions server have `null` instead of an empty list of rows.
    let bare = resource.custom.is_some() || resource.group == "apiextensions.k8s.io";
    let rows = if rows.is_empty() && bare { Value::Null } else { rows.into() };
    let headers = if headers { definitions(resource) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": headers, "rows": rows})
}

fn row(resource: &Resource, object: &Value, include: Include) -> Value {
    let cells: Vec<_> = match &resource.custom {
        Some(custom) => std::iter::once(at(object, "metadata.name").clone())
            .chain(custom.columns.iter().map(|column| custom_cell(column, object)))
            .collect(),
        None => {
            let mut kept = object.clone();
            if let Some(alias) = resource.alias {
                alias.keep(&mut kept);
            }
            resource.rules.columns.iter().map(|column| (column.cell)(&kept)).collect()
        }
    };
    let mut row = json!({"cells": cells});
    if resource.group.is_empty()
        && resource.kind == "Pod"
        && let Some(conditions) = columns::conditions(object)
    {
        value::set(&mut row, "conditions", conditions);
    }
    match include {
        Include::None => value::set(&mut row, "object", Value::Null),
        Include::Metadata => value::set(&mut row, "object", partial(object)),
        Include::Object => value::set(&mut row, "object", object.clone()),
    }
    row
}

/// The metadata of an object, as `PartialObjectMetadata`.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": at(object, "metadata")})
}

/// A label selector as text; empty if it selects everything.
pub(crate) fn selector_text(selector: &Value) -> String {
    match columns::selector(selector).as_str() {
        None | Some("<none>") => String::new(),
        Some(text) => text.to_owned(),
    }
}

fn definitions(resource: &Resource) -> Value {
    let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    let name = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow \
        a client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
        idempotence and configuration definition. Cannot be updated. More info: \
        https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
    let definitions: Vec<_> = match &resource.custom {
        Some(custom) => std::iter::once(definition("Name", "string", "name", name, 0))
            .chain(custom.columns.iter().map(|column| {
                let description = match text(column, "description") {
                    "" => {
                        format!("Custom resource definition column (in JSONPath format): {}", text(column, "jsonPath"))
                    }
                    description => description.to_owned(),
                };
                let priority = at(column, "priority").as_i64().unwrap_or(0);
                definition(text(column, "name"), text(column, "type"), text(column, "format"), &description, priority)
            }))
            .collect(),
        None => resource
            .rules
            .columns
            .iter()
            .map(|column| {
                let (format, description) = if column.name == "Name" { ("name", name) } else { ("", "") };
                definition(column.name, column.kind, format, description, column.priority)
            })
            .collect(),
    };
    definitions.into()
}

fn custom_cell(column: &Value, object: &Value) -> Value {
    let found = json_path(object, text(column, "jsonPath"));
    match (text(column, "type"), found) {
        (_, None) => Value::Null,
        ("date", Some(Value::String(time))) => age(&time).into(),
        ("string", Some(Value::String(text))) => text.into(),
        ("string", Some(value)) => value.to_string().into(),
        (_, Some(value)) => value,
    }
}

/// Evaluates a simple JSONPath: fields, indices, `[*]`, and `[?(@.a=="b")]`.
pub(crate) fn json_path(object: &Value, path: &str) -> Option<Value> {
    let mut found = vec![object];
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("[?(@.") {
            let (test, after) = after.split_once(")]")?;
            let (field, wanted) = test.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            let matches = |item: &&Value| at(item, field.trim()).as_str() == Some(wanted);
            found = found.into_iter().filter_map(Value::as_array).flatten().filter(matches).collect();
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']')?;
            let index = index.trim_matches(['"', '\'']);
            found = found
                .into_iter()
                .flat_map(|value| match (index, value) {
                    ("*", Value::Array(items)) => items.iter().collect::<Vec<_>>(),
                    (_, Value::Array(items)) => {
                        index.parse::<usize>().ok().and_then(|index| items.get(index)).into_iter().collect()
                    }
                    (_, value) => value.get(index).into_iter().collect(),
                })
                .collect();
            rest = after;
        } else {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let mut end = 0;
            let bytes = field.as_bytes();
            while bytes.get(end).is_some_and(|c| *c != b'.' && *c != b'[') {
                end += if bytes.get(end) == Some(&b'\\') { 2 } else { 1 };
            }
            let (name, after) = field.split_at_checked(end)?;
            if name.is_empty() {
                return None;
            }
            let name = name.replace("\\.", ".");
            found = found.into_iter().filter_map(|value| value.get(&name)).collect();
            rest = after;
        }
    }
    match found.as_slice() {
        [] => None,
        [one] => Some((*one).clone()),
        many => {
            let text = |value: &&Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some(many.iter().map(text).collect::<Vec<_>>().join(",").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_paths_of_columns_are_evaluated() {
        let object =
            json!({"spec": {"a": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}, "metadata": {"labels": {"a.b/c": "z"}}});
        assert_eq!(json_path(&object, ".spec.a[1].v"), Some(json!(2)));
        assert_eq!(json_path(&object, ".spec.a[?(@.n==\"y\")].v"), Some(json!(2)));
        assert_eq!(json_path(&object, ".spec.a[*].n"), Some(json!("x,y")));
        assert_eq!(json_path(&object, ".metadata.labels.a\\.b/c"), Some(json!("z")));
        assert_eq!(json_path(&object, ".spec.b"), None);
    }
}
