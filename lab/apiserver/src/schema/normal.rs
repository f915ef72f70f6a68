//! Normalises objects: removes empty fields, and adds those that are always present.

use serde_json::{Map, Value};

use super::{Field, Schema, Shape, Type};

/// Booleans for which false is the same as missing.
const OFF: &[&str] = &[
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
    "publishNotReadyAddresses",
    "unschedulable",
    "paused",
    "insecureSkipTLSVerify",
];

/// Numbers for which zero is the same as missing.
const ZERO: &[&str] = &[
    "generation",
    "observedGeneration",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "nodePort",
    "hostPort",
    "healthCheckNodePort",
    "minReadySeconds",
    "count",
    "weight",
];

/// Strings for which empty differs from missing.
const EMPTY: &[(&str, &str)] = &[("EndpointPort", "name"), ("HostPathVolumeSource", "type")];

/// Selectors of workloads have no default.
const NULL: &[(&str, &str)] =
    &[("DaemonSetSpec", "selector"), ("DeploymentSpec", "selector"), ("ReplicaSetSpec", "selector")];

/// Brings an object of a built-in type into the form in which the real server stores and sends it.
pub(crate) fn normalise(schema: &Schema, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Type(index), Value::Object(map)) => {
            let Some(kind) = schema.get(*index) else { return };
            // Iterates over the present fields: most types have many fields of which objects have few.
            map.retain(|name, value| {
                let Some(field) = kind.field(name) else { return true };
                normalise(schema, &field.shape, value);
                !is_default(kind, field, value)
            });
            for field in kind.fields.iter().filter(|field| field.always) {
                if !map.contains_key(&field.name) {
                    let null = NULL.contains(&(kind.short(), field.name.as_str()));
                    let empty = if null { Value::Null } else { empty_value(schema, &field.shape) };
                    map.insert(field.name.clone(), empty);
                }
            }
        }
        (Shape::List(item, _), Value::Array(values)) => {
            values.iter_mut().for_each(|value| normalise(schema, item, value));
        }
        (Shape::Map(item, _), Value::Object(values)) => {
            values.values_mut().for_each(|value| normalise(schema, item, value));
        }
        _ => {}
    }
}

fn is_default(kind: &Type, field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        _ if field.always => false,
        Value::String(text) => text.is_empty() && !EMPTY.contains(&(kind.short(), field.name.as_str())),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty() && matches!(field.shape, Shape::Map(..)),
        Value::Bool(value) => !value && OFF.contains(&field.name.as_str()),
        Value::Number(number) => {
            let counts = kind.short().ends_with("Status") && field.name != "terminatingReplicas";
            number.as_i64() == Some(0) && (counts || ZERO.contains(&field.name.as_str()))
        }
    }
}

fn empty_value(schema: &Schema, shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Quantity => "".into(),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrText => 0.into(),
        Shape::Bool => false.into(),
        Shape::Type(_) => {
            let mut value = Value::Object(Map::new());
            normalise(schema, shape, &mut value);
            value
        }
        Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Any | Shape::List(..) | Shape::Map(..) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_fields_are_removed_and_required_ones_added() {
        let schema = Schema::builtin();
        let mut value = json!({
            "metadata": {"name": "a", "labels": {}, "generateName": ""},
            "spec": {"containers": [{"name": "c", "tty": false, "securityContext": {}}], "nodeSelector": null, "hostNetwork": false},
        });
        normalise(schema, &schema.named("core.v1.Pod"), &mut value);
        let expected = json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "resources": {}, "securityContext": {}}]},
            "status": {},
        });
        assert_eq!(value, expected);
    }
}
