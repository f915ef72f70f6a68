//! Field ownership: `metadata.managedFields`, and server-side apply.

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::moment;
use crate::schema::{Schema, Shape};
use crate::value;

mod compare;
mod fields;
mod merge;
mod typed;
pub(crate) use fields::Fields;
pub(crate) use typed::check;

/// The writer of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// Name of the field manager.
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    fields: Fields,
}

impl Entry {
    fn new(writer: Writer<'_>, operation: &str, time: String, fields: Fields) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation: operation.to_owned(),
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time,
            fields,
        }
    }

    fn read(value: &Value) -> Self {
        let text = |key: &str| value::text(value, key).to_owned();
        Self {
            manager: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: Fields::from_json(value::at(value, "fieldsV1")),
        }
    }

    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager, "operation": self.operation, "apiVersion": self.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_json(),
        });
        for (key, text) in [("subresource", &self.subresource), ("time", &self.time)] {
            if !text.is_empty() {
                value::set(&mut entry, key, text.as_str());
            }
        }
        entry
    }

    fn order(&self) -> [&str; 5] {
        [&self.operation, &self.time, &self.manager, &self.api_version, &self.subresource]
    }

    fn is(&self, writer: Writer<'_>, operation: &str) -> bool {
        self.manager == writer.manager
            && self.operation == operation
            && self.subresource == writer.subresource
            && (operation == "Apply" || self.api_version == writer.api_version)
    }
}

fn entries(object: &Value) -> Vec<Entry> {
    value::items(object, "metadata.managedFields").iter().map(Entry::read).collect()
}

fn store(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    // Entries of applies come first, then by time.
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    if entries.is_empty() {
        value::remove(object, "metadata.managedFields");
    } else {
        value::set(object, "metadata.managedFields", entries.iter().map(Entry::write).collect::<Vec<_>>());
    }
}

/// Records that a writer changed `old` (null if there was none) to `new`.
pub(crate) fn record(schema: &Schema, shape: &Shape, old: &Value, new: &mut Value, writer: Writer<'_>) {
    let sent = value::at(new, "metadata.managedFields");
    let known = match sent.as_array().map(Vec::as_slice) {
        // An explicit empty list, or one empty entry, resets the managed fields.
        Some([]) => Vec::new(),
        Some([one]) if one.as_object().is_some_and(Map::is_empty) => Vec::new(),
        Some(_) => entries(new),
        None => entries(old),
    };
    let empty = json!({});
    let (changed, removed) = compare::compare(schema, shape, if old.is_null() { &empty } else { old }, new);
    let touched = changed.union(&removed);
    let mut entries: Vec<Entry> = Vec::new();
    let mut mine = None;
    for mut entry in known {
        if entry.is(writer, "Update") {
            mine = Some(entry);
        } else {
            entry.fields = entry.fields.minus(&touched);
            entries.push(entry);
        }
    }
    let before = mine.as_ref().map(|entry| entry.fields.clone()).unwrap_or_default();
    let fields = before.minus(&removed).union(&changed);
    let time = match mine {
        Some(entry) if touched.is_empty() => entry.time,
        // The real server has no time for changes of the scale.
        _ if writer.subresource == "scale" => String::new(),
        _ => moment::now(),
    };
    entries.push(Entry::new(writer, "Update", time, fields));
    store(new, entries);
}

/// The object that results from applying `config`, which has no `managedFields`, where no object exists.
pub(crate) fn apply_new(schema: &Schema, shape: &Shape, mut config: Value, writer: Writer<'_>) -> Value {
    let wanted = wanted(schema, shape, &config, writer);
    let (changed, _) = compare::compare(schema, shape, &json!({}), &config);
    let time = if changed.is_empty() { String::new() } else { moment::now() };
    store(&mut config, vec![Entry::new(writer, "Apply", time, wanted)]);
    config
}

/// The fields that a writer owns after applying `config`.
fn wanted(schema: &Schema, shape: &Shape, config: &Value, writer: Writer<'_>) -> Fields {
    let mut wanted = compare::fields_of(schema, shape, config);
    wanted.strip(if writer.subresource == "status" { &["f:spec"] } else { &["f:status"] });
    wanted
}

/// The object that results from applying `config`, which has no `managedFields`, to `live`.
pub(crate) fn apply(
    schema: &Schema,
    shape: &Shape,
    live: &Value,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let wanted = wanted(schema, shape, config, writer);
    let mut merged = live.clone();
    let mut entries = entries(live);
    merge::merge(schema, shape, &mut merged, config);
    let before =
        entries.iter().find(|entry| entry.is(writer, "Apply")).map(|entry| entry.fields.clone()).unwrap_or_default();
    let others = entries
        .iter()
        .filter(|entry| !entry.is(writer, "Apply"))
        .fold(Fields::default(), |all, entry| all.union(&entry.fields));
    // Fields that this writer applied before and no longer does are removed, unless another manager owns them too.
    for path in before.minus(&wanted).minus(&others).paths() {
        if !wanted.reaches(&path) && !others.reaches(&path) {
            merge::remove(&mut merged, &path);
        }
    }
    let (changed, removed) = compare::compare(schema, shape, live, &merged);
    let touched = changed.union(&removed);
    let mut conflicts = Vec::new();
    for entry in &mut entries {
        if entry.is(writer, "Apply") {
            continue;
        }
        let both = entry.fields.both(&touched).both(&wanted);
        if both.is_empty() {
            entry.fields = entry.fields.minus(&removed);
            continue;
        }
        if force {
            entry.fields = entry.fields.minus(&both).minus(&removed);
        } else {
            conflicts.push((who(entry), both.paths().iter().map(|path| fields::display(path)).collect()));
        }
    }
    if !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    // A writer that changes nothing has no time, or that of its last change.
    let before = entries.iter().find(|entry| entry.is(writer, "Apply")).map(|entry| entry.time.clone());
    let time = if touched.is_empty() { before.unwrap_or_default() } else { moment::now() };
    entries.retain(|entry| !entry.is(writer, "Apply"));
    entries.push(Entry::new(writer, "Apply", time, wanted));
    store(&mut merged, entries);
    Ok(merged)
}

fn who(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == "Update" {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

fn conflict(conflicts: &[(String, Vec<String>)]) -> Failure {
    let count: usize = conflicts.iter().map(|(_, fields)| fields.len()).sum();
    let mut message = format!("Apply failed with {count} conflict{}: ", if count == 1 { "" } else { "s" });
    let parts: Vec<_> = conflicts
        .iter()
        .map(|(who, fields)| match fields.as_slice() {
            [field] if count == 1 => format!("conflict with {who}: {field}"),
            fields => format!("conflicts with {who}:\n- {}", fields.join("\n- ")),
        })
        .collect();
    message.push_str(&parts.join("\n"));
    let failure = Failure::new(409, "Conflict", message);
    conflicts
        .iter()
        .flat_map(|(who, fields)| fields.iter().map(move |field| (who, field)))
        .fold(failure, |failure, (who, field)| {
            failure.with_cause("FieldManagerConflict", &format!("conflict with {who}"), field)
        })
}

#[cfg(test)]
mod tests;
