//! Checks the backends of APIServices, and sets their `Available` condition.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{State, proxy};
use crate::core::{Write, available};
use crate::failure::Failure;
use crate::value::{at, items, set, text};

const GROUP: &str = "apiregistration.k8s.io";
/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Updates the conditions until the server stops.
pub(crate) async fn run(state: Arc<State>) {
    let core = &state.core;
    let mut ending = state.ending.clone();
    let mut services = core.store.subscribe(&crate::resources::group_resource("", "services"));
    let mut registered = core.store.subscribe(&crate::resources::group_resource(GROUP, "apiservices"));
    loop {
        services.mark_unchanged();
        registered.mark_unchanged();
        let remote = state.backends.services(core);
        for service in remote.iter() {
            let condition = check(&state, service).await;
            if let Err(failure) = set_condition(&state, service, &condition) {
                tracing::debug!(%failure, "cannot update the status of an APIService, retrying");
            }
        }
        let again = Instant::now() + CHECK_INTERVAL;
        tokio::select! {
            result = registered.changed() => if result.is_err() { return },
            result = services.changed(), if !remote.is_empty() => if result.is_err() { return },
            () = state.backends.changed() => {}
            () = tokio::time::sleep_until(again), if !remote.is_empty() => {}
            () = crate::server::ended(&mut ending) => return,
        }
    }
}

async fn check(state: &State, service: &Value) -> Value {
    let (namespace, name) = (text(service, "spec.service.namespace"), text(service, "spec.service.name"));
    let Some(backend) = state.backends.backend(service) else { return Value::Null };
    if !backend.has_address() {
        if state.core.find("", "services", namespace, name).is_none() {
            let why = format!("service/{name} in \"{namespace}\" is not present");
            return available("False", "ServiceNotFound", &why);
        }
        let why = format!("endpoints for service/{name} in \"{namespace}\" have no addresses");
        return available("False", "MissingEndpoints", &why);
    }
    match proxy::resources(&backend).await {
        Ok(_) => available("True", "Passed", "all checks passed"),
        Err(failure) => {
            let why = format!("failing or missing response from service/{name} in \"{namespace}\": {failure}");
            available("False", "FailedDiscoveryCheck", &why)
        }
    }
}

/// Writes the condition if it differs.
fn set_condition(state: &State, service: &Value, condition: &Value) -> Result<(), Failure> {
    let current = items(service, "status.conditions").iter().find(|current| text(current, "type") == "Available");
    let same = |key: &str| current.is_some_and(|current| at(current, key) == at(condition, key));
    if condition.is_null() || ["status", "reason", "message"].into_iter().all(same) {
        return Ok(());
    }
    let resource = state.core.builtin(GROUP, "apiservices")?;
    let write = Write::by("kube-apiserver").status();
    let written = state.core.modify(&resource, "", text(service, "metadata.name"), &write, true, |old| {
        let mut new = old.clone();
        set(&mut new, "status.conditions", json!([condition]));
        Ok(new)
    });
    match written {
        Err(failure) if failure.code == 404 => Ok(()),
        result => result.map(drop),
    }
}
