//! The rows: all built-in resources, and those that are answered without being stored.

use super::{Row, Rules, alias};
use crate::defaults;
use crate::names::NameRule;
use crate::table::columns;
use crate::validate;

const PLAIN: Rules = Rules {
    defaults: defaults::none,
    validate: validate::none,
    validate_update: validate::no_update,
    warnings: validate::no_warnings,
    columns: columns::PLAIN,
};

const ROW: Row = Row {
    group: "",
    plural: "",
    kind: "",
    short: &[],
    categories: &[],
    namespaced: true,
    subresources: &[],
    names: NameRule::Subdomain,
    package: "core.v1",
    generation: false,
    fields: &[],
    unconditional: true,
    returns_deleted: false,
    alias: None,
    rules: PLAIN,
};
const RBAC: Row = Row { group: "rbac.authorization.k8s.io", package: "rbac.v1", names: NameRule::PathSegment, ..ROW };
const APPS: Row = Row { group: "apps", package: "apps.v1", categories: &["all"], generation: true, ..ROW };

pub(crate) static ROWS: &[Row] = &[
    Row {
        plural: "configmaps",
        kind: "ConfigMap",
        short: &["cm"],
        rules: Rules {
            validate: validate::config_map,
            validate_update: validate::secret_update,
            columns: columns::CONFIG_MAP,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        plural: "events",
        kind: "Event",
        short: &["ev"],
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        rules: Rules { validate: validate::event, columns: columns::EVENT, ..PLAIN },
        ..ROW
    },
    Row {
        group: "events.k8s.io",
        package: "events.v1",
        plural: "events",
        kind: "Event",
        short: &["ev"],
        fields: &["reason", "type"],
        alias: Some(&alias::EVENTS),
        rules: Rules { validate: validate::new_event, columns: columns::EVENT, ..PLAIN },
        ..ROW
    },
    Row {
        plural: "namespaces",
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        subresources: &["finalize", "status"],
        names: NameRule::Label,
        fields: &["status.phase"],
        returns_deleted: true,
        rules: Rules { defaults: defaults::namespace, columns: columns::NAMESPACE, ..PLAIN },
        ..ROW
    },
    Row {
        plural: "nodes",
        kind: "Node",
        short: &["no"],
        namespaced: false,
        subresources: &["status"],
        fields: &["spec.unschedulable"],
        rules: Rules {
            defaults: defaults::node,
            validate: validate::node,
            validate_update: validate::node_update,
            columns: columns::NODE,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        plural: "pods",
        kind: "Pod",
        short: &["po"],
        categories: &["all"],
        subresources: &["attach", "binding", "eviction", "exec", "log", "portforward", "status"],
        generation: true,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        returns_deleted: true,
        rules: Rules {
            defaults: defaults::pod,
            validate: validate::pod,
            validate_update: validate::pod_update,
            columns: columns::POD,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        plural: "secrets",
        kind: "Secret",
        fields: &["type"],
        rules: Rules {
            defaults: defaults::secret,
            validate: validate::secret,
            validate_update: validate::secret_update,
            columns: columns::SECRET,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short: &["sa"],
        subresources: &["token"],
        returns_deleted: true,
        ..ROW
    },
    Row {
        plural: "services",
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        subresources: &["status"],
        names: NameRule::Label,
        fields: &["spec.clusterIP", "spec.type"],
        returns_deleted: true,
        rules: Rules {
            defaults: defaults::service,
            validate: validate::service,
            validate_update: validate::service_update,
            warnings: validate::service_warnings,
            columns: columns::SERVICE,
        },
        ..ROW
    },
    Row {
        plural: "daemonsets",
        kind: "DaemonSet",
        short: &["ds"],
        subresources: &["status"],
        rules: Rules {
            defaults: defaults::daemon_set,
            validate: validate::workload,
            validate_update: validate::selector_update,
            columns: columns::DAEMON_SET,
            ..PLAIN
        },
        ..APPS
    },
    Row {
        plural: "deployments",
        kind: "Deployment",
        short: &["deploy"],
        subresources: &["scale", "status"],
        rules: Rules {
            defaults: defaults::deployment,
            validate: validate::workload,
            validate_update: validate::selector_update,
            columns: columns::DEPLOYMENT,
            ..PLAIN
        },
        ..APPS
    },
    Row {
        plural: "replicasets",
        kind: "ReplicaSet",
        short: &["rs"],
        subresources: &["scale", "status"],
        fields: &["status.replicas"],
        rules: Rules {
            defaults: defaults::replica_set,
            validate: validate::workload,
            validate_update: validate::selector_update,
            columns: columns::REPLICA_SET,
            ..PLAIN
        },
        ..APPS
    },
    Row {
        group: "discovery.k8s.io",
        package: "discovery.v1",
        plural: "endpointslices",
        kind: "EndpointSlice",
        generation: true,
        rules: Rules {
            defaults: defaults::endpoint_slice,
            validate: validate::endpoint_slice,
            validate_update: validate::endpoint_slice_update,
            columns: columns::ENDPOINT_SLICE,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        group: "networking.k8s.io",
        package: "networking.v1",
        plural: "networkpolicies",
        kind: "NetworkPolicy",
        short: &["netpol"],
        generation: true,
        rules: Rules {
            defaults: defaults::network_policy,
            validate: validate::network_policy,
            columns: columns::NETWORK_POLICY,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        group: "coordination.k8s.io",
        package: "coordination.v1",
        plural: "leases",
        kind: "Lease",
        unconditional: false,
        rules: Rules { validate: validate::lease, columns: columns::LEASE, ..PLAIN },
        ..ROW
    },
    Row {
        plural: "clusterrolebindings",
        kind: "ClusterRoleBinding",
        namespaced: false,
        rules: Rules {
            defaults: defaults::binding,
            validate: validate::binding,
            validate_update: validate::binding_update,
            columns: columns::BINDING,
            ..PLAIN
        },
        ..RBAC
    },
    Row {
        plural: "clusterroles",
        kind: "ClusterRole",
        namespaced: false,
        rules: Rules { validate: validate::role, columns: columns::CREATED, ..PLAIN },
        ..RBAC
    },
    Row {
        plural: "rolebindings",
        kind: "RoleBinding",
        rules: Rules {
            defaults: defaults::binding,
            validate: validate::binding,
            validate_update: validate::binding_update,
            columns: columns::BINDING,
            ..PLAIN
        },
        ..RBAC
    },
    Row {
        plural: "roles",
        kind: "Role",
        rules: Rules { validate: validate::role, columns: columns::CREATED, ..PLAIN },
        ..RBAC
    },
    Row {
        group: "apiextensions.k8s.io",
        package: "apiextensions.v1",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        unconditional: false,
        subresources: &["status"],
        generation: true,
        rules: Rules {
            defaults: defaults::custom_definition,
            validate: crate::custom::definition,
            columns: columns::CREATED,
            ..PLAIN
        },
        ..ROW
    },
    Row {
        group: "apiregistration.k8s.io",
        package: "apiregistration.v1",
        plural: "apiservices",
        kind: "APIService",
        categories: &["api-extensions"],
        namespaced: false,
        unconditional: false,
        subresources: &["status"],
        rules: Rules {
            defaults: defaults::api_service,
            validate: validate::api_service,
            columns: columns::API_SERVICE,
            ..PLAIN
        },
        ..ROW
    },
];

/// Resources that are not stored, such as reviews and evictions: group, plural, kind, whether they are namespaced.
pub(crate) static QUESTIONS: &[(&str, &str, &str, bool)] = &[
    ("", "bindings", "Binding", true),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", false),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", false),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", true),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", false),
];

/// The rules of custom resources: none.
pub(crate) static CUSTOM_RULES: Rules = PLAIN;
