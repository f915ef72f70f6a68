//! Configuration files of the programs: Antrea's keys, read with care.
//!
//! *Role.* A program says which keys there are ([`Schema`]) and asks a [`Reader`] for their values.
//!
//! *Invariants.* A value that cannot be meant is a problem that names the key, the value and what is allowed; so is a key that
//! looks like a misspelt one. Keys of Antrea that have no effect yet, and keys that nobody knows, are told and accepted. All
//! problems of a file are told at once.
//!
//! *Not here.* Which keys there are and what they mean: the programs know.

mod nearest;
mod reader;

pub use reader::Reader;

use std::fmt;

/// A key of a configuration file.
#[derive(Debug)]
pub struct Key {
    /// Its path, sections separated by dots.
    pub path: &'static str,
    /// Its value where the file has none, as YAML; empty if it is then not set at all.
    pub default: &'static str,
    /// What it says.
    pub about: &'static str,
}

/// A key: its path, its default, and what it says.
pub const fn key(path: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { path, default, about }
}

/// The section that switches features on and off; its keys are the features.
pub const FEATURE_GATES: &str = "featureGates";

/// What a configuration file may say.
#[derive(Debug)]
pub struct Schema {
    /// All keys: Antrea's, whether they have an effect here or not, and our own.
    pub keys: &'static [Key],
    /// Keys that are read and checked, and that nothing uses yet.
    pub not_yet: &'static [&'static str],
    /// Features, with whether they are on where the file says nothing.
    pub features: &'static [(&'static str, bool)],
}

/// What is wrong with a configuration file; all of it at once.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(f, "{}: {problem}", self.file),
            problems => write!(f, "{}: {} problems:\n  {}", self.file, problems.len(), problems.join("\n  ")),
        }
    }
}

/// The tables of the documentation: every key and feature, and whether `reader`, which a program has asked, knows an effect of it.
pub fn document(schema: &Schema, reader: &Reader) -> String {
    let effect = |name: &str| if reader.was_asked(name) { "yes" } else { "not yet" };
    let mut text = String::from("| key | default | has an effect | what it says |\n| --- | --- | --- | --- |\n");
    for key in schema.keys {
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        text += &format!("| `{}` | {default} | {} | {} |\n", key.path, effect(key.path), key.about);
    }
    text += "\n## Features\n\nUnder `featureGates`, each `true` or `false`:\n\n| feature | default | has an effect |\n| --- | --- | --- |\n";
    for (name, default) in schema.features {
        text += &format!("| `{name}` | `{default}` | {} |\n", effect(name));
    }
    text
}

/// Reads the text of a file by asking for its values; gives what was asked for, and lines for the log.
pub fn read<T>(
    schema: &'static Schema,
    file: &str,
    text: &str,
    ask: impl FnOnce(&mut Reader) -> T,
) -> Result<(T, Vec<String>), ConfigError> {
    let failed = |problems| ConfigError { file: file.to_owned(), problems };
    let mut reader = Reader::new(schema, text).map_err(|problem| failed(vec![problem]))?;
    let asked = ask(&mut reader);
    reader.note_the_rest();
    if reader.problems.is_empty() { Ok((asked, reader.notes)) } else { Err(failed(reader.problems)) }
}
