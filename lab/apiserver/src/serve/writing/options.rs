//! Options of a write, from the query parameters.

use serde_json::{Value, json};

use crate::core::{DeleteOptions, Strictness, Write};
use crate::failure::{Failure, FieldError};
use crate::resources::Resource;
use crate::serve::{Asked, reading};
use crate::value::{at, items, text};

/// Maximum length of a field manager's name.
const MAX_MANAGER_NAME: usize = 128;

/// The object of the request, and the options of its write.
pub(super) fn sent(
    asked: &Asked,
    body: &[u8],
    resource: &Resource,
    subresource: &str,
) -> Result<(Value, Write), Failure> {
    let sent = reading::object(asked, body, &resource.kind, resource.custom.is_some())?;
    Ok((sent.value, Write { duplicates: sent.duplicates, ..options(asked, subresource)? }))
}

pub(super) fn options(asked: &Asked, subresource: &str) -> Result<Write, Failure> {
    let query = &asked.query;
    let kind = match asked.verb {
        "create" => "CreateOptions",
        "patch" => "PatchOptions",
        _ => "UpdateOptions",
    };
    let strictness = match query.get("fieldValidation") {
        "Strict" => Strictness::Strict,
        "Ignore" => Strictness::Ignore,
        "" | "Warn" => Strictness::Warn,
        other => {
            let errors =
                [FieldError::not_supported("fieldValidation", &other.into(), &["", "Ignore", "Strict", "Warn"])];
            return Err(Failure::invalid("meta.k8s.io", kind, "", &errors));
        }
    };
    if query.get("fieldManager").len() > MAX_MANAGER_NAME {
        return Err(Failure::invalid(
            "meta.k8s.io",
            kind,
            "",
            &[FieldError::too_long("fieldManager", MAX_MANAGER_NAME)],
        ));
    }
    Ok(Write {
        manager: asked.manager(),
        dry_run: dry_run(query.all("dryRun"), kind)?,
        strictness,
        force: query.flag("force"),
        subresource: subresource.to_owned(),
        duplicates: Vec::new(),
    })
}

fn dry_run<'a>(mut values: impl Iterator<Item = &'a str>, kind: &str) -> Result<bool, Failure> {
    values.try_fold(false, |_, value| match value {
        "All" => Ok(true),
        other => {
            let errors = [FieldError::not_supported("dryRun", &json!([other]), &["All"])];
            Err(Failure::invalid("meta.k8s.io", kind, "", &errors))
        }
    })
}

pub(super) fn delete_options(asked: &Asked, body: &[u8]) -> Result<DeleteOptions, Failure> {
    let given = reading::delete_options(asked, body)?;
    let kind = text(&given, "kind");
    if !["", "DeleteOptions"].contains(&kind) {
        let version = text(&given, "apiVersion");
        let scheme = "pkg/runtime/scheme.go:111";
        let why = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
        return Err(Failure::bad_request(why));
    }
    let query = &asked.query;
    let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut propagation = own(text(&given, "propagationPolicy")).or_else(|| own(query.get("propagationPolicy")));
    let orphan = match (at(&given, "orphanDependents"), query.get("orphanDependents")) {
        (Value::Bool(orphan), _) => Some(*orphan),
        (_, "") => None,
        (_, text) => Some(text == "true"),
    };
    if let (Some(_), Some(policy)) = (orphan, &propagation) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let errors = [FieldError::invalid("propagationPolicy", &json!(policy), why)];
        return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    if orphan == Some(true) {
        propagation = Some("Orphan".to_owned());
    }
    if let Some(other) =
        propagation.as_deref().filter(|policy| !["Background", "Foreground", "Orphan"].contains(policy))
    {
        let known = &["Foreground", "Background", "Orphan", "nil"];
        let errors = [FieldError::not_supported("propagationPolicy", &other.into(), known)];
        return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    let mut runs = query.all("dryRun").chain(items(&given, "dryRun").iter().filter_map(Value::as_str));
    Ok(DeleteOptions {
        grace_seconds: at(&given, "gracePeriodSeconds").as_i64().or(query.number("gracePeriodSeconds")?),
        propagation,
        uid: own(text(&given, "preconditions.uid")),
        resource_version: own(text(&given, "preconditions.resourceVersion")),
        dry_run: dry_run(&mut runs, "DeleteOptions")?,
    })
}
