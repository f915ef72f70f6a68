//! What is asked, as data: the files in `e2e/compat/steps`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use crate::yaml;

/// Steps about one subject, in order. They have the Namespace `compat-<name>` to themselves.
#[derive(Clone, Debug)]
pub struct Area {
    /// The file's name without its extension.
    pub name: String,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// One request, and what of the answer counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it shows; unique in its area.
    pub step: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE` and a path; `WATCH` and a path; `OPEN` and a path and `COLLECT`, for a
    /// watch that is open while the steps between happen; or `COMPACT`.
    #[serde(rename = "do")]
    pub request: String,
    /// Who asks: a bearer token, `anonymous`, or, if nothing is said, the administrator.
    #[serde(rename = "as")]
    pub user: Option<String>,
    /// The body's content type, or `json`, `merge`, `strategic`, `apply` for patches.
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    /// The content type asked for, or `table`, `partial`, `partial-list`.
    pub accept: Option<String>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body, as a value.
    pub body: Option<Value>,
    /// The body, literally.
    pub raw: Option<String>,
    /// Variables for later steps, `${name}`, and where in the answer they are.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// The request is repeated until the answer has these values; `status` is the status code.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    /// How many events of a watch are read.
    pub events: Option<usize>,
    /// What of the answer is left out, as paths with `*` for any one name.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Arrays whose elements come in any order, as JSON pointers.
    #[serde(default)]
    pub unordered: Vec<String>,
    /// Which elements of a list count.
    pub only: Option<Only>,
}

/// Those elements of the array at `list` whose `key` is one of `values`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Only {
    /// Where the array is.
    pub list: String,
    /// The field that names an element, as a JSON pointer into it.
    pub key: String,
    /// The names that count.
    pub values: Vec<String>,
}

/// All areas, by name.
pub fn areas() -> Result<Vec<Area>> {
    let mut files: Vec<_> = fs::read_dir(data().join("steps"))?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(fs::DirEntry::path);
    files.iter().map(|file| area(&file.path())).collect()
}

/// Where the steps and the golden answers are.
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
    fn every_step_is_well_formed_and_has_a_name_of_its_own() {
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
