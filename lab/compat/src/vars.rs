//! Variables: values of answers for use in later requests.

use std::collections::BTreeMap;

use serde_json::Value;

/// Values by name; `${name}` stands for the value.
#[derive(Clone, Default, Debug)]
pub(crate) struct Vars(BTreeMap<String, Value>);

impl Vars {
    /// The predefined variables of an area: its Namespace and common paths in it.
    pub(crate) fn of_area(area: &str) -> Self {
        let ns = format!("compat-{area}");
        let mut vars = Self::default();
        vars.set("ns", ns.clone().into());
        vars.set("core", format!("/api/v1/namespaces/{ns}").into());
        for (name, group) in [
            ("apps", "apps/v1"),
            ("net", "networking.k8s.io/v1"),
            ("rbac", "rbac.authorization.k8s.io/v1"),
            ("slices", "discovery.k8s.io/v1"),
            ("leases", "coordination.k8s.io/v1"),
        ] {
            vars.set(name, format!("/apis/{group}/namespaces/{ns}").into());
        }
        vars
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Replaces each known `${name}`; an unknown one stays, and shows up in the server's answer.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut done = String::new();
        let mut rest = text;
        while let Some((before, name, after)) = next(rest) {
            done += before;
            match self.0.get(name) {
                Some(Value::String(value)) => done += value,
                Some(value) => done += &value.to_string(),
                None => done += &rest[before.len()..rest.len() - after.len()],
            }
            rest = after;
        }
        done + rest
    }

    /// Replaces each known variable in a value; one that is a whole string keeps its type.
    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => match next(text) {
                Some(("", name, "")) if self.0.contains_key(name) => self.0[name].clone(),
                _ => self.text(text).into(),
            },
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (self.text(name), self.value(value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// Splits at the first variable: the text before it, its name, the text after it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${")?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_replaced_and_keep_their_type_when_alone() {
        let mut vars = Vars::of_area("pods");
        vars.set("port", json!(80));
        assert_eq!(vars.text("${core}/pods?x=${port}${y}"), "/api/v1/namespaces/compat-pods/pods?x=80${y}");
        assert_eq!(vars.value(&json!({"${ns}": ["${port}", "p${port}", 7]})), json!({"compat-pods": [80, "p80", 7]}));
    }
}
