//! Aliases: resources that are stored as objects of another resource, with other names of some fields.

use serde_json::Value;

use crate::schema::{Schema, normalise};
use crate::value;

/// The stored resource of an alias, and the fields with other names.
#[derive(Debug, PartialEq)]
pub(crate) struct Alias {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) api_version: &'static str,
    /// The type of the stored objects.
    pub(crate) kind: &'static str,
    /// Names of fields here, and in the stored objects.
    pub(crate) names: &'static [(&'static str, &'static str)],
}

/// Events of `events.k8s.io`, stored as those of `v1`.
pub(crate) const EVENTS: Alias = Alias {
    group: "",
    plural: "events",
    api_version: "v1",
    kind: "core.v1.Event",
    names: &[
        ("regarding", "involvedObject"),
        ("note", "message"),
        ("reportingController", "reportingComponent"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ],
};

impl Alias {
    /// Converts an object to its stored form.
    pub(crate) fn keep(&self, object: &mut Value) {
        self.rename(object, self.api_version, |(here, there)| (here, there));
        normalise(Schema::builtin(), &Schema::builtin().named(self.kind), object);
    }

    /// Converts a stored object to this resource.
    pub(crate) fn show(&self, object: &mut Value, api_version: &str) {
        self.rename(object, api_version, |(here, there)| (there, here));
    }

    fn rename<'a>(
        &'a self,
        object: &mut Value,
        api_version: &str,
        order: impl Fn((&'a str, &'a str)) -> (&'a str, &'a str),
    ) {
        for (from, to) in self.names.iter().copied().map(order) {
            if let Some(moved) = value::remove(object, from) {
                value::set(object, to, moved);
            }
        }
        value::set(object, "apiVersion", api_version);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_stored_in_the_old_form_and_served_in_both() {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "n",
            "regarding": {"name": "p"}, "reportingController": "c", "reportingInstance": "i"});
        let mut object = event.clone();
        EVENTS.keep(&mut object);
        assert_eq!((&object["message"], &object["involvedObject"]["name"]), (&json!("n"), &json!("p")));
        assert_eq!((&object["apiVersion"], &object["firstTimestamp"]), (&json!("v1"), &Value::Null));
        EVENTS.show(&mut object, "events.k8s.io/v1");
        assert_eq!((&object["note"], &object["deprecatedSource"]), (&json!("n"), &json!({})));
        assert!(object.get("message").is_none());
    }
}
