//! All keys of `antrea-controller.conf`: those of Antrea, implemented or not, and a few of our own.

use ::config::{Key, Schema, key};

/// The schema of the file.
pub(crate) const SCHEMA: Schema = Schema { keys: KEYS, not_yet: &[], features: FEATURES };

/// All keys, in the order of the documentation.
pub(crate) const KEYS: &[Key] = &[
    key("apiPort", "10349", "port of the API, for agents and for the Kubernetes API server"),
    key("apiAddress", "", "address to listen on, all addresses if not set; not in Antrea"),
    key("enablePrometheusMetrics", "true", "serve Prometheus metrics at /metrics"),
    key("selfSignedCert", "true", "sign the serving certificate with a CA of the controller"),
    key("clientConnection.kubeconfig", "", "kubeconfig file; the ServiceAccount of the Pod if not set"),
    key("kubeAPIServerOverride", "", "URL of the Kubernetes API, overrides the kubeconfig"),
    key("nodeIPAM.enableNodeIPAM", "false", "assign Pod subnets to Nodes that have none"),
    key("nodeIPAM.clusterCIDRs", "[]", "networks to allocate Node subnets from, one per IP family"),
    key("nodeIPAM.serviceCIDR", "", "Service network; no Node subnet overlaps it"),
    key("nodeIPAM.serviceCIDRv6", "", "Service network for IPv6"),
    key("nodeIPAM.nodeCIDRMaskSizeIPv4", "24", "prefix length of a Node's IPv4 subnet"),
    key("nodeIPAM.nodeCIDRMaskSizeIPv6", "64", "prefix length of a Node's IPv6 subnet"),
    key("ipsecCSRSigner.selfSignedCA", "true", "sign IPsec certificates with a CA of the controller"),
    key("ipsecCSRSigner.autoApprove", "true", "approve IPsec certificate requests automatically"),
    key("multicluster.enableStretchedNetworkPolicy", "false", "let policies select Pods of other clusters"),
    key("multicluster.namespace", "", "namespace of the multi-cluster controller"),
    key("tlsCipherSuites", "", "TLS cipher suites of the API; the defaults of rustls are always used"),
    key("tlsMinVersion", "", "minimum TLS version; always 1.2"),
    key("legacyCRDMirroring", "false", "mirror resources of legacy API groups"),
];

/// Antrea's feature gates, with their defaults.
pub(crate) const FEATURES: &[(&str, bool)] = &[
    ("AllAlpha", false),
    ("AllBeta", false),
    ("AdminNetworkPolicy", false),
    ("AntreaIPAM", false),
    ("AntreaPolicy", true),
    ("ClusterNetworkPolicy", false),
    ("Egress", true),
    ("IPsecCertAuth", false),
    ("L7NetworkPolicy", false),
    ("Multicast", true),
    ("Multicluster", false),
    ("NetworkPolicyStats", true),
    ("NodeIPAM", true),
    ("ServiceExternalIP", true),
    ("SupportBundleCollection", false),
    ("Traceflow", true),
];
