//! Checks the backends of APIServices, and sets their `Available` condition.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{State, proxy};
use crate::core::{Write, available};
use crate::failure::Failure;
use crate::objects::{ApiService, Condition, Service};
use crate::value::set;

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
            let Some(condition) = check(&state, service).await else { continue };
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

/// The `Available` condition of an APIService; `None` if it has no backend.
async fn check(state: &State, service: &ApiService) -> Option<Condition> {
    let to = service.spec.service.as_ref()?;
    let (namespace, name) = (&to.namespace, &to.name);
    let backend = state.backends.backend(service)?;
    if !backend.has_address() {
        if state.core.read::<Service>(namespace, name).is_none() {
            let why = format!("service/{name} in \"{namespace}\" is not present");
            return Some(available("False", "ServiceNotFound", &why));
        }
        let why = format!("endpoints for service/{name} in \"{namespace}\" have no addresses");
        return Some(available("False", "MissingEndpoints", &why));
    }
    Some(match proxy::resources(&backend).await {
        Ok(_) => available("True", "Passed", "all checks passed"),
        Err(failure) => {
            let why = format!("failing or missing response from service/{name} in \"{namespace}\": {failure}");
            available("False", "FailedDiscoveryCheck", &why)
        }
    })
}

/// Writes the condition if it differs.
fn set_condition(state: &State, service: &ApiService, condition: &Condition) -> Result<(), Failure> {
    let current = Condition::find(&service.status.conditions, &condition.kind);
    let key = |condition: &Condition| (condition.status.clone(), condition.reason.clone(), condition.message.clone());
    if current.map(key) == Some(key(condition)) {
        return Ok(());
    }
    let resource = state.core.builtin(GROUP, "apiservices")?;
    let write = Write::by("kube-apiserver").status();
    let written = state.core.modify(&resource, "", &service.metadata.name, &write, true, |old| {
        let mut new = old.clone();
        set(&mut new, "status.conditions", json!([condition]));
        Ok(new)
    });
    match written {
        Err(failure) if failure.code == 404 => Ok(()),
        result => result.map(drop),
    }
}
