//! The columns of the built-in resources.

use serde_json::Value;

use super::age;
use crate::value::{at, text};

mod cells;
mod pods;
pub(super) use cells::selector;
use cells::{
    amount, api_service, api_service_available, count, event_age, event_source, external_ip, join, kernel, labels,
    node_address, node_roles, node_status, or_none, or_unknown, service_ports, slice_endpoints, slice_ports, subjects,
};
pub(super) use pods::conditions;

/// A column with a function for its cells.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    /// Columns above 0 are shown only with `-o wide`.
    pub(crate) priority: i64,
    pub(crate) cell: fn(&Value) -> Value,
}

const fn column(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, kind: "string", priority: 0, cell }
}

const fn number(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, kind: "integer", priority: 0, cell }
}

const fn wide(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, kind: "string", priority: 1, cell }
}

const NAME: Column = column("Name", |object| at(object, "metadata.name").clone());
const AGE: Column = column("Age", |object| age(text(object, "metadata.creationTimestamp")).into());
const CONTAINERS: Column = wide("Containers", |object| join(object, "spec.template.spec.containers", "name"));
const IMAGES: Column = wide("Images", |object| join(object, "spec.template.spec.containers", "image"));
const SELECTOR: Column = wide("Selector", |object| selector(at(object, "spec.selector")));

pub(crate) const PLAIN: &[Column] = &[NAME, AGE];
pub(crate) const CREATED: &[Column] =
    &[NAME, Column { kind: "date", ..column("Created At", |object| at(object, "metadata.creationTimestamp").clone()) }];
pub(crate) const NAMESPACE: &[Column] = &[NAME, column("Status", |object| at(object, "status.phase").clone()), AGE];
pub(crate) const CONFIG_MAP: &[Column] =
    &[NAME, column("Data", |object| (count(object, "data") + count(object, "binaryData")).into()), AGE];
pub(crate) const SECRET: &[Column] = &[
    NAME,
    column("Type", |object| at(object, "type").clone()),
    column("Data", |object| count(object, "data").into()),
    AGE,
];
pub(crate) const LEASE: &[Column] = &[NAME, column("Holder", |object| text(object, "spec.holderIdentity").into()), AGE];
pub(crate) const NETWORK_POLICY: &[Column] =
    &[NAME, column("Pod-Selector", |object| selector(at(object, "spec.podSelector"))), AGE];
pub(crate) const POD: &[Column] = &[
    NAME,
    column("Ready", pods::ready),
    column("Status", pods::status),
    column("Restarts", pods::restarts),
    AGE,
    wide("IP", |object| or_none(text(object, "status.podIP"))),
    wide("Node", |object| or_none(text(object, "spec.nodeName"))),
    wide("Nominated Node", |object| or_none(text(object, "status.nominatedNodeName"))),
    wide("Readiness Gates", pods::gates),
];
pub(crate) const NODE: &[Column] = &[
    NAME,
    column("Status", node_status),
    column("Roles", node_roles),
    AGE,
    column("Version", |object| at(object, "status.nodeInfo.kubeletVersion").clone()),
    wide("Internal-IP", |object| node_address(object, "InternalIP")),
    wide("External-IP", |object| node_address(object, "ExternalIP")),
    wide("OS-Image", |object| or_unknown(text(object, "status.nodeInfo.osImage"))),
    wide("Kernel-Version", kernel),
    wide("Container-Runtime", |object| or_unknown(text(object, "status.nodeInfo.containerRuntimeVersion"))),
];
pub(crate) const SERVICE: &[Column] = &[
    NAME,
    column("Type", |object| at(object, "spec.type").clone()),
    column("Cluster-IP", |object| or_none(text(object, "spec.clusterIP"))),
    column("External-IP", external_ip),
    column("Port(s)", service_ports),
    AGE,
    wide("Selector", |object| labels(at(object, "spec.selector"))),
];
pub(crate) const DEPLOYMENT: &[Column] = &[
    NAME,
    column("Ready", |object| {
        format!("{}/{}", amount(object, "status.readyReplicas"), amount(object, "spec.replicas")).into()
    }),
    column("Up-to-date", |object| amount(object, "status.updatedReplicas").into()),
    column("Available", |object| amount(object, "status.availableReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const REPLICA_SET: &[Column] = &[
    NAME,
    number("Desired", |object| amount(object, "spec.replicas").into()),
    number("Current", |object| amount(object, "status.replicas").into()),
    number("Ready", |object| amount(object, "status.readyReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const DAEMON_SET: &[Column] = &[
    NAME,
    number("Desired", |object| amount(object, "status.desiredNumberScheduled").into()),
    number("Current", |object| amount(object, "status.currentNumberScheduled").into()),
    number("Ready", |object| amount(object, "status.numberReady").into()),
    number("Up-to-date", |object| amount(object, "status.updatedNumberScheduled").into()),
    number("Available", |object| amount(object, "status.numberAvailable").into()),
    column("Node Selector", |object| labels(at(object, "spec.template.spec.nodeSelector"))),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    column("AddressType", |object| at(object, "addressType").clone()),
    column("Ports", slice_ports),
    column("Endpoints", slice_endpoints),
    AGE,
];
pub(crate) const EVENT: &[Column] = &[
    column("Last Seen", |object| event_age(object, "lastTimestamp")),
    column("Type", |object| text(object, "type").into()),
    column("Reason", |object| text(object, "reason").into()),
    column("Object", |object| {
        format!("{}/{}", text(object, "involvedObject.kind").to_lowercase(), text(object, "involvedObject.name")).into()
    }),
    wide("Subobject", |object| text(object, "involvedObject.fieldPath").into()),
    wide("Source", event_source),
    column("Message", |object| text(object, "message").trim().into()),
    wide("First Seen", |object| event_age(object, "firstTimestamp")),
    wide("Count", |object| at(object, "count").as_i64().unwrap_or(1).into()),
    wide("Name", |object| at(object, "metadata.name").clone()),
];
pub(crate) const BINDING: &[Column] = &[
    NAME,
    column("Role", |object| format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name")).into()),
    AGE,
    wide("Users", |object| subjects(object, "User")),
    wide("Groups", |object| subjects(object, "Group")),
    wide("ServiceAccounts", |object| subjects(object, "ServiceAccount")),
];
pub(crate) const API_SERVICE: &[Column] =
    &[NAME, column("Service", api_service), column("Available", api_service_available), AGE];
