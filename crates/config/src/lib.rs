//! Configuration files of the programs, with the keys of Antrea.
//!
//! *Role.* A program declares its keys ([`Schema`]) and reads their values from a [`Reader`].
//!
//! *Invariants.* An invalid value is an error that names the key, the value and the allowed values; so is a key that
//! looks misspelt. Antrea's keys without effect and unknown keys are accepted with a warning. All errors of a file are
//! reported at once.
//!
//! *Not here.* The keys and their meaning: they are in the programs.

mod nearest;
mod reader;

pub use reader::Reader;

use std::fmt;

/// A key of a configuration file.
#[derive(Debug)]
pub struct Key {
    /// Path of the key; dots separate sections.
    pub path: &'static str,
    /// Default as YAML; empty if the key has none.
    pub default: &'static str,
    /// Meaning, for the table in the documentation.
    pub about: &'static str,
}

/// Builds a [`Key`] from path, default and meaning.
pub const fn key(path: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { path, default, about }
}

/// The section that turns features on and off; its keys are the features.
pub const FEATURE_GATES: &str = "featureGates";

/// The keys and features of a configuration file.
#[derive(Debug)]
pub struct Schema {
    /// All keys: Antrea's, whether they have an effect here or not, and our own.
    pub keys: &'static [Key],
    /// Keys that are read and checked, but not implemented.
    pub not_yet: &'static [&'static str],
    /// Feature gates and their defaults.
    pub features: &'static [(&'static str, bool)],
}

/// All errors of a configuration file.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// Path of the configuration file.
    pub file: String,
    /// Everything that is wrong with the file.
    pub problems: Vec<Problem>,
}

/// One error of a configuration file. The text begins with the key, if there is one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot be read: {reason}; --config must be the path of the {program}'s configuration file")]
    Unreadable {
        /// Error of the operating system.
        reason: String,
        /// The program that the file is for.
        program: &'static str,
    },
    /// The file is not YAML.
    #[error("{0}")]
    NotYaml(String),
    /// The file is YAML, but has no keys.
    #[error("is not a mapping of keys to values")]
    NotKeys,
    /// A key that looks misspelt.
    #[error("{key}: there is no such key; did you mean {meant}?")]
    UnknownKey {
        /// The key in the file.
        key: String,
        /// The known key that is most similar.
        meant: String,
    },
    /// A key with an invalid value.
    #[error("{key}: {value} {what}")]
    Value {
        /// The key, with the index of an entry of a list.
        key: String,
        /// The value in quotes.
        value: String,
        /// What is wrong with it, and what is allowed.
        what: String,
    },
    /// Keys that contradict each other, or a key that another one needs.
    #[error("{0}")]
    Combination(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(f, "{}: {problem}", self.file),
            problems => {
                write!(f, "{}: {} problems:", self.file, problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

/// The tables of the documentation: keys and features, and whether they have an effect, which is the case if `reader`
/// was asked for them.
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

/// Reads the text of a configuration file. `ask` takes the values from the reader. Returns its result, and warnings for
/// the log.
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
