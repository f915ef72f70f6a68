//! The requests as data: the files in `e2e/compat/steps`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use crate::yaml;

/// Steps about one subject, in order. They have a Namespace of their own, `compat-<name>`.
#[derive(Clone, Debug)]
pub struct Area {
    /// Name of the file without its extension.
    pub name: String,
    /// Requests to send, in order.
    pub steps: Vec<Step>,
}

/// One request, and the parts of its answer that count.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name of the step, unique in its area.
    pub step: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE` and a path; `WATCH` and a path; `OPEN` and a path and `COLLECT`, for a
    /// watch that is open while the steps between happen; or `COMPACT`.
    #[serde(rename = "do")]
    pub request: String,
    /// Credentials: a bearer token, `anonymous`, or by default the administrator's.
    #[serde(rename = "as")]
    pub user: Option<String>,
    /// The body's content type, or `json`, `merge`, `strategic`, `apply` for patches.
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    /// The content type to accept, or `table`, `partial`, `partial-list`.
    pub accept: Option<String>,
    /// Further headers of the request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body of the request, sent as JSON.
    pub body: Option<Value>,
    /// Body of the request, sent unchanged.
    pub raw: Option<String>,
    /// Variables for later steps, `${name}`, with the JSON pointers of their values in the answer.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Repeat the request until the answer has these values; `status` is the status code.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    /// Number of events to read from a watch.
    pub events: Option<usize>,
    /// Paths to remove from the answer; `*` stands for any one name.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// JSON pointers of arrays with elements in any order.
    #[serde(default)]
    pub unordered: Vec<String>,
    /// Selects the elements of a list that count.
    pub only: Option<Only>,
}

/// Keeps the elements of the array at `list` of which `key` is one of `values`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Only {
    /// JSON pointer of the array.
    pub list: String,
    /// JSON pointer, within an element, of the field with its name.
    pub key: String,
    /// Names of the elements to keep.
    pub values: Vec<String>,
}

/// Reads all areas, sorted by name.
pub fn areas() -> Result<Vec<Area>> {
    let mut files: Vec<_> = fs::read_dir(data().join("steps"))?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(fs::DirEntry::path);
    files.iter().map(|file| area(&file.path())).collect()
}

/// The directory of the steps and the golden answers.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/compat")
}

fn area(file: &Path) -> Result<Area> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Area { name, steps: yaml::read(file)? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_step_is_well_formed_and_has_a_unique_name() {
        for area in areas().unwrap() {
            let names: BTreeSet<_> = area.steps.iter().map(|step| &step.step).collect();
            assert_eq!(names.len(), area.steps.len(), "{}: two steps have one name", area.name);
            for step in &area.steps {
                let (verb, path) = step.request.split_once(' ').unwrap_or((&step.request, ""));
                let bare = ["COMPACT", "COLLECT"].contains(&verb);
                let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "WATCH", "OPEN"].contains(&verb) || bare;
                assert!(known && (bare == path.is_empty()), "{}: {}", area.name, step.request);
                let streams = ["WATCH", "COLLECT"].contains(&verb);
                assert_eq!(streams, step.events.is_some(), "{}: {}", area.name, step.step);
                assert!(step.body.is_none() || step.raw.is_none(), "{}: {}", area.name, step.step);
            }
        }
    }
}
