//! Resources that are the same objects as those of another, with other names for some fields.

use serde_json::Value;

use crate::schema::{Schema, normalise};
use crate::value;

/// The resource whose objects these are, and how they are kept.
#[derive(Debug, PartialEq)]
pub(crate) struct Twin {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) api_version: &'static str,
    /// The type of what is kept.
    pub(crate) kind: &'static str,
    /// Names of fields here, and of the same fields in what is kept.
    pub(crate) names: &'static [(&'static str, &'static str)],
}

/// Events as `events.k8s.io` has them.
pub(crate) const EVENTS: Twin = Twin {
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

impl Twin {
    /// Makes an object what is kept.
    pub(crate) fn keep(&self, object: &mut Value) {
        self.rename(object, self.api_version, |(here, there)| (here, there));
        normalise(Schema::builtin(), &Schema::builtin().named(self.kind), object);
    }

    /// Makes what is kept an object of this resource.
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
    fn an_event_is_kept_in_the_old_form_and_shown_in_both() {
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
