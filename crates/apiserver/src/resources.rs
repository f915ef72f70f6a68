//! The table of resources: a resource is a row in it.

use std::sync::Arc;

use serde_json::Value;

use crate::custom::Custom;
use crate::defaults;
use crate::failure::Of;
use crate::names::NameRule;
use crate::schema::{Schema, Shape};
use crate::table::columns::{self, Column};
use crate::validate::{self, Errors};

mod twin;
pub(crate) use twin::Twin;

/// What is particular about a resource, beyond its names.
pub(crate) struct Rules {
    pub(crate) defaults: fn(&mut Value),
    pub(crate) validate: fn(&Value, &mut Errors),
    /// Checks a change: the new object, then the old one.
    pub(crate) validate_update: fn(&Value, &Value, &mut Errors),
    /// What is said of an object that is good.
    pub(crate) warnings: fn(&Value) -> Vec<String>,
    pub(crate) columns: &'static [Column],
}

const PLAIN: Rules = Rules {
    defaults: defaults::none,
    validate: validate::none,
    validate_update: validate::no_update,
    warnings: validate::no_warnings,
    columns: columns::PLAIN,
};

/// A row of the table.
pub(crate) struct Row {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    /// `status`, and what else is below an object.
    subresources: &'static [&'static str],
    names: NameRule,
    /// The prefix of its type in the schema.
    package: &'static str,
    /// Counts the changes of what is wanted.
    generation: bool,
    /// Paths for field selectors, besides name and namespace.
    fields: &'static [&'static str],
    /// An update may leave out the version that it is about.
    unconditional: bool,
    /// A delete answers with the object instead of a `Status`.
    returns_deleted: bool,
    /// The resource whose objects these are, if they are not its own.
    twin: Option<&'static Twin>,
    rules: Rules,
}

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
    twin: None,
    rules: PLAIN,
};
const RBAC: Row = Row { group: "rbac.authorization.k8s.io", package: "rbac.v1", names: NameRule::PathSegment, ..ROW };
const APPS: Row = Row { group: "apps", package: "apps.v1", categories: &["all"], generation: true, ..ROW };

/// Every built-in resource.
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
        twin: Some(&twin::EVENTS),
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
        subresources: &["binding", "eviction", "status"],
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

/// Resources that are made and not kept, as they ask or order something: group, plural, kind, whether they are in a namespace.
pub(crate) static QUESTIONS: &[(&str, &str, &str, bool)] = &[
    ("", "bindings", "Binding", true),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", false),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", false),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", true),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", false),
];

/// A resource that objects can be kept of, built in or defined by a CustomResourceDefinition.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) subresources: Vec<String>,
    pub(crate) names: NameRule,
    pub(crate) shape: Shape,
    pub(crate) generation: bool,
    pub(crate) fields: Vec<String>,
    pub(crate) unconditional: bool,
    pub(crate) returns_deleted: bool,
    pub(crate) rules: &'static Rules,
    /// The resource whose objects these are, if they are not its own.
    pub(crate) twin: Option<&'static Twin>,
    /// Where its objects are kept.
    pub(crate) shelf: Arc<str>,
    /// What a CustomResourceDefinition says of it.
    pub(crate) custom: Option<Arc<Custom>>,
}

impl Resource {
    pub(crate) fn of(row: &'static Row) -> Self {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Self {
            group: row.group.to_owned(),
            version: "v1".to_owned(),
            plural: row.plural.to_owned(),
            singular: row.kind.to_lowercase(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            short: own(row.short),
            categories: own(row.categories),
            namespaced: row.namespaced,
            subresources: own(row.subresources),
            names: row.names,
            shape: Schema::builtin().named(&format!("{}.{}", row.package, row.kind)),
            generation: row.generation,
            fields: own(row.fields),
            unconditional: row.unconditional,
            returns_deleted: row.returns_deleted,
            rules: &row.rules,
            twin: row.twin,
            shelf: row.twin.map_or_else(|| shelf(row.group, row.plural), |twin| shelf(twin.group, twin.plural)),
            custom: None,
        }
    }

    /// The schema that its shape refers to.
    pub(crate) fn schema(&self) -> &Schema {
        match &self.custom {
            Some(custom) => &custom.schema,
            None => Schema::builtin(),
        }
    }

    /// Whether objects are answered as they are kept.
    pub(crate) fn as_kept(&self) -> bool {
        self.custom.is_none() && self.twin.is_none()
    }

    /// The group that messages name: that of what is kept.
    pub(crate) fn kept_group(&self) -> &str {
        self.twin.map_or(&self.group, |twin| twin.group)
    }

    /// For messages.
    pub(crate) fn id(&self) -> Of<'_> {
        Of { group: self.kept_group(), resource: &self.plural }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }

    /// Whether objects can be selected by the field.
    pub(crate) fn selectable(&self, path: &str) -> bool {
        path == "metadata.name"
            || (path == "metadata.namespace" && self.namespaced)
            || self.fields.iter().any(|field| field == path)
    }

    /// The key of an object on the shelf.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// The name of the shelf of a resource.
pub(crate) fn shelf(group: &str, plural: &str) -> Arc<str> {
    format!("{group}/{plural}").into()
}

/// The rules of resources that have none.
pub(crate) static CUSTOM_RULES: Rules = PLAIN;
