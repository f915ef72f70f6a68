//! Validation of names, labels and addresses, with the messages of the real server.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
    with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// The format of the names of a resource's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
    /// Anything that can be a segment of a path.
    PathSegment,
}

impl NameRule {
    /// The errors of a name; none if it is valid. A prefix is the start of a generated name.
    pub(crate) fn check(self, name: &str, prefix: bool) -> Vec<String> {
        // A generated suffix makes a trailing dash valid.
        let masked = if prefix && name.ends_with('-') && name.len() > 1 {
            format!("{}a", name.trim_end_matches('-'))
        } else {
            name.to_owned()
        };
        match self {
            Self::Subdomain => subdomain(&masked),
            Self::Label => label(&masked),
            Self::PathSegment => path_segment(name),
        }
    }
}

fn at_most(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn dashed(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn free(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn at_most_characters(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

pub(crate) fn label(text: &str) -> Vec<String> {
    if text.contains('.') {
        return vec!["must not contain dots".to_owned()];
    }
    at_most_characters(text, 63).into_iter().chain((!dashed(text)).then(|| LABEL.to_owned())).collect()
}

pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let good = text.split('.').all(dashed);
    at_most_characters(text, 253).into_iter().chain((!good).then(|| SUBDOMAIN.to_owned())).collect()
}

fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%'].into_iter().filter(|c| name.contains(*c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// The key of a label or an annotation.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<_> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            }
            *name
        }
        _ => {
            let rest = QUALIFIED.strip_prefix("name part ").unwrap_or_default();
            let of = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a qualified name {rest} {of}")];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(at_most(name, 63).map(|why| format!("name part {why}")));
    if !free(name) {
        wrong.push(QUALIFIED.to_owned());
    }
    wrong
}

/// The key of a label: a qualified name, with messages of its own.
pub(crate) fn label_key(text: &str) -> Vec<String> {
    let wrong = qualified_name(text).into_iter();
    wrong.map(|why| why.replacen("a qualified name must", "a valid label key must", 1)).collect()
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    let good = text.is_empty() || free(text);
    at_most(text, 63).into_iter().chain((!good).then(|| LABEL_VALUE.to_owned())).collect()
}

/// A key of a ConfigMap or a Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong: Vec<_> = at_most(text, 253).into_iter().collect();
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        wrong.push(CONFIG_KEY.to_owned());
    } else if text == "." || text == ".." {
        wrong.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        wrong.push("must not start with '..'".to_owned());
    }
    wrong
}

/// The name of a port of a container or a Service, in the format of IANA.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push("must be no more than 15 characters".to_owned());
    }
    if !text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_accepted_and_invalid_ones_rejected() {
        assert!(label("a-1").is_empty() && subdomain("a.b-c").is_empty() && qualified_name("a.b/C_d").is_empty());
        assert!(label_value("").is_empty() && port_name("http-2").is_empty() && config_key("a_B.c").is_empty());
        assert!(!label("A").is_empty() && !subdomain("a..b").is_empty() && !qualified_name("a/b/c").is_empty());
        assert!(!port_name("123").is_empty() && !config_key("..").is_empty());
        assert_eq!(label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert!(NameRule::Subdomain.check("web-", true).is_empty());
        assert!(!NameRule::Subdomain.check("web-", false).is_empty());
    }
}
