//! Paths in an object. They are formatted only for errors, because most fields are valid.

use std::fmt;

/// The path from the root of an object to a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Top,
    /// A field of a type.
    Field(&'a Path<'a>, &'a str),
    /// An entry of a map.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The names of the fields in the path, without keys and indices.
    pub(crate) fn fields(&self) -> String {
        match self {
            Path::Top => String::new(),
            Path::Key(before, _) | Path::Item(before, _) => before.fields(),
            Path::Field(before, name) => match before.fields() {
                fields if fields.is_empty() => (*name).to_owned(),
                fields => format!("{fields}.{name}"),
            },
        }
    }

    /// Whether the path begins with a field.
    pub(crate) fn is_below(&self, field: &str) -> bool {
        match self {
            Path::Top => false,
            Path::Field(before, _) | Path::Key(before, _) | Path::Item(before, _) => {
                matches!(before, Path::Field(Path::Top, name) if *name == field) || before.is_below(field)
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Top => Ok(()),
            Path::Field(Path::Top, name) | Path::Key(Path::Top, name) => f.write_str(name),
            Path::Field(before, name) | Path::Key(before, name) => write!(f, "{before}.{name}"),
            Path::Item(before, index) => write!(f, "{before}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_fields_keys_and_indices() {
        let spec = Path::Field(&Path::Top, "spec");
        let containers = Path::Field(&spec, "containers");
        let second = Path::Item(&containers, 1);
        let limits = Path::Field(&second, "limits");
        let cpu = Path::Key(&limits, "cpu");
        assert_eq!(cpu.to_string(), "spec.containers[1].limits.cpu");
        assert_eq!(cpu.fields(), "spec.containers.limits");
        assert!(cpu.is_below("spec") && containers.is_below("spec"));
        assert!(!spec.is_below("spec") && !cpu.is_below("containers") && !Path::Top.is_below("spec"));
    }
}
