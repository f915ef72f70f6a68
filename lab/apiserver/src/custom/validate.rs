//! Validation of custom objects by structural schemas.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::Custom;
use crate::failure::FieldError;
use crate::validate::Errors;
use crate::value::{at, items, text};

/// Validates an object against the schema of its version, or only its status.
pub(crate) fn validate(custom: &Custom, object: &Value, subresource: &str, errors: &mut Errors) {
    let before = errors.len();
    let (given, replicas) = match subresource {
        "status" => {
            let mut wrong = Errors::new();
            check(at(&custom.given, "properties.status"), at(object, "status"), "", &mut wrong);
            errors.extend(wrong.into_iter().map(|wrong| wrong.below("status")));
            (&custom.given, "statusReplicasPath")
        }
        _ => {
            check(&custom.given, object, "", errors);
            (&custom.given, "specReplicasPath")
        }
    };
    scales(text(&custom.scale, replicas), object, errors);
    let blocked = errors.iter().skip(before).any(FieldError::blocks_rules);
    if blocked && given.to_string().contains("x-kubernetes-validations") {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::invalid("<nil>", &Value::Null, why));
    }
}

/// The fields that the scale subresource reads must be counts.
fn scales(path: &str, object: &Value, errors: &mut Errors) {
    let found = at(object, path.trim_start_matches('.'));
    match (path.is_empty() || found.is_null(), found.as_i64()) {
        (true, _) => {}
        (false, None) => {
            let (rendered, kind) = (crate::patch::go(found), go_type(found));
            let why = format!("{path} accessor error: {rendered} is of the type {kind}, expected int64");
            errors.push(FieldError::invalid(path, &json!(0), &why));
        }
        (false, Some(count)) if count < 0 => {
            errors.push(FieldError::invalid(path, &json!(count), "should be a non-negative integer"));
        }
        (false, Some(_)) => {}
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        other => type_of(other).trim_end_matches("ean"),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(given: &Value, value: &Value, path: &str, errors: &mut Errors) {
    if value.is_null() && at(given, "nullable") == true {
        return;
    }
    let wanted = text(given, "type");
    let found = type_of(value);
    let either = at(given, "x-kubernetes-int-or-string") == true;
    let fits = wanted.is_empty() || wanted == found || (wanted == "number" && found == "integer");
    let format = text(given, "format");
    if wanted == "integer" && found == "number" && !format.is_empty() {
        let why = format!("{path} in body must be of type {format}: \"float64\"");
        errors.push(FieldError::type_invalid(path, &json!("float64"), &why));
        let why = format!("Checked value must be of type integer with format {format} in {path}");
        errors.push(FieldError::invalid("<nil>", &json!(""), &why));
        return;
    }
    if either && !matches!(found, "integer" | "string") || !either && !fits {
        let wanted = if either { "integer,string" } else { wanted };
        let body = if path.is_empty() { "" } else { path };
        errors.push(FieldError::type_invalid(
            path,
            &json!(found),
            &format!("{body} in body must be of type {wanted}: {found:?}"),
        ));
        return;
    }
    let values = items(given, "enum");
    if !values.is_empty() && !values.contains(value) {
        let supported: Vec<_> =
            values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        let supported: Vec<_> = supported.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &supported));
    }
    match value {
        Value::Object(map) => object(given, map, path, errors),
        Value::Array(list) => array(given, list, path, errors),
        Value::String(string) => strings(given, string, path, errors),
        Value::Number(_) => numbers(given, value, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
    combined(given, value, path, errors);
}

fn object(given: &Value, map: &serde_json::Map<String, Value>, path: &str, errors: &mut Errors) {
    for name in items(given, "required").iter().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            errors.push(FieldError::required(join(path, name), ""));
        }
    }
    for (name, value) in map {
        if path.is_empty() && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        if let Some(inner) = at(given, "properties").get(name) {
            check(inner, value, &join(path, name), errors);
        } else if let Some(inner) = given.get("additionalProperties").filter(|inner| inner.is_object()) {
            check(inner, value, &join(path, name), errors);
        }
    }
    if let Some(most) = limit(given, "maxProperties").filter(|&most| map.len() > most) {
        errors.push(FieldError::too_many(path, map.len(), most));
    }
    if let Some(least) = limit(given, "minProperties").filter(|&least| map.len() < least) {
        let why = format!("{path} in body should have at least {least} properties");
        errors.push(FieldError::invalid(path, &json!(map.len()), &why));
    }
}

fn limit(given: &Value, key: &str) -> Option<usize> {
    at(given, key).as_u64().and_then(|limit| usize::try_from(limit).ok())
}

fn array(given: &Value, list: &[Value], path: &str, errors: &mut Errors) {
    if let Some(most) = limit(given, "maxItems").filter(|&most| list.len() > most) {
        errors.push(FieldError::too_many(path, list.len(), most));
    }
    if let Some(least) = limit(given, "minItems").filter(|&least| list.len() < least) {
        let why = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path, &json!(list.len()), &why));
    }
    for (index, value) in list.iter().enumerate() {
        check(at(given, "items"), value, &format!("{path}[{index}]"), errors);
    }
    let keys = items(given, "x-kubernetes-list-map-keys");
    let identity = |value: &Value| match text(given, "x-kubernetes-list-type") {
        "set" => Some(value.clone()),
        "map" => {
            Some(keys.iter().filter_map(Value::as_str).map(|key| (key.to_owned(), at(value, key).clone())).collect())
        }
        _ => None,
    };
    let mut seen = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let Some(id) = identity(value) else { break };
        if seen.contains(&id) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &id));
        }
        seen.push(id);
    }
}

fn strings(given: &Value, string: &str, path: &str, errors: &mut Errors) {
    let (value, length) = (json!(string), string.chars().count());
    let pattern = text(given, "pattern");
    let matches = || regex_lite::Regex::new(pattern).is_ok_and(|regex| regex.is_match(string));
    // Only the first error is reported.
    if let Some(most) = limit(given, "maxLength").filter(|&most| length > most) {
        errors.push(FieldError::too_long(path, most));
    } else if let Some(least) = limit(given, "minLength").filter(|&least| length < least) {
        let why = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, &value, &why));
    } else if !pattern.is_empty() && !matches() {
        errors.push(FieldError::invalid(path, &value, &format!("{path} in body should match '{pattern}'")));
    }
    let format = text(given, "format");
    let good = match format {
        "ipv4" => string.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => string.parse::<Ipv6Addr>().is_ok(),
        "ip" => string.parse::<IpAddr>().is_ok(),
        "cidr" => string.parse::<ipnet::IpNet>().is_ok(),
        "date-time" => crate::moment::parse_rfc3339(string).is_some(),
        _ => true,
    };
    if !good {
        let why = format!("{path} in body must be of type {format}: {string:?}");
        errors.push(FieldError::type_invalid(path, &value, &why));
    }
}

fn numbers(given: &Value, value: &Value, path: &str, errors: &mut Errors) {
    let number = value.as_f64().unwrap_or_default();
    if let Some(least) = at(given, "minimum").as_f64() {
        let exclusive = at(given, "exclusiveMinimum") == true;
        if number < least || (exclusive && number <= least) {
            let than = if exclusive { "greater than" } else { "greater than or equal to" };
            errors.push(FieldError::invalid(
                path,
                value,
                &format!("{path} in body should be {than} {}", at(given, "minimum")),
            ));
        }
    }
    if let Some(most) = at(given, "maximum").as_f64() {
        let exclusive = at(given, "exclusiveMaximum") == true;
        if number > most || (exclusive && number >= most) {
            let than = if exclusive { "less than" } else { "less than or equal to" };
            errors.push(FieldError::invalid(
                path,
                value,
                &format!("{path} in body should be {than} {}", at(given, "maximum")),
            ));
        }
    }
}

fn combined(given: &Value, value: &Value, path: &str, errors: &mut Errors) {
    let wrong = |inner: &Value| {
        let mut errors = Errors::new();
        check(inner, value, path, &mut errors);
        errors
    };
    for inner in items(given, "allOf") {
        errors.extend(wrong(inner));
    }
    let mut none = |outcomes: Vec<Errors>, why: &str| {
        errors.push(FieldError::invalid("<nil>", &json!(""), &format!("\"{path}\" must {why}")));
        // The errors of the first alternative.
        errors.extend(outcomes.into_iter().next().unwrap_or_default());
    };
    let any: Vec<_> = items(given, "anyOf").iter().map(wrong).collect();
    if !any.is_empty() && any.iter().all(|errors| !errors.is_empty()) {
        none(any, "validate at least one schema (anyOf)");
    }
    let one: Vec<_> = items(given, "oneOf").iter().map(wrong).collect();
    match one.iter().filter(|errors| errors.is_empty()).count() {
        1 => {}
        0 if one.is_empty() => {}
        0 => none(one, "validate one and only one schema (oneOf). Found none valid"),
        count => {
            let why = format!("validate one and only one schema (oneOf). Found {count} valid alternatives");
            none(Vec::new(), &why);
        }
    }
    if given.get("not").is_some_and(|inner| wrong(inner).is_empty()) {
        none(Vec::new(), "not validate the schema (not)");
    }
}
