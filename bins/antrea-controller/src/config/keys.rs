//! Every key of `antrea-controller.conf`: Antrea's, whether they have an effect here or not, and the few of our own.

use ::config::{Key, Schema, key};

/// What the file may say.
pub(crate) const SCHEMA: Schema = Schema { keys: KEYS, not_yet: &[], features: FEATURES };

/// All of them, in the order of the documentation.
pub(crate) const KEYS: &[Key] = &[
    key("apiPort", "10349", "port of the API, for agents and for the Kubernetes API server"),
    key("apiAddress", "", "ours: address to listen at; all where not set"),
    key("enablePrometheusMetrics", "true", "whether there are metrics"),
    key("selfSignedCert", "true", "whether the controller has an authority of its own for its certificates"),
    key(
        "clientConnection.kubeconfig",
        "",
        "file with the way to the Kubernetes API; the ServiceAccount's where not set",
    ),
    key("kubeAPIServerOverride", "", "address of the Kubernetes API in place of the one that is configured"),
    key("nodeIPAM.enableNodeIPAM", "false", "whether Nodes without a subnet for Pods get one here"),
    key("nodeIPAM.clusterCIDRs", "[]", "networks that subnets are taken from, one a family"),
    key("nodeIPAM.serviceCIDR", "", "network of Services that no subnet may overlap"),
    key("nodeIPAM.serviceCIDRv6", "", "the same for IPv6"),
    key("nodeIPAM.nodeCIDRMaskSizeIPv4", "24", "length of a Node's IPv4 prefix"),
    key("nodeIPAM.nodeCIDRMaskSizeIPv6", "64", "length of a Node's IPv6 prefix"),
    key("ipsecCSRSigner.selfSignedCA", "true", "whether certificates for IPsec are signed by an authority of its own"),
    key("ipsecCSRSigner.autoApprove", "true", "whether requests for them are approved"),
    key("multicluster.enableStretchedNetworkPolicy", "false", "whether policies select Pods of other clusters"),
    key("multicluster.namespace", "", "namespace of the multi-cluster controller"),
    key("tlsCipherSuites", "", "ciphers of the API; those of rustls are always used"),
    key("tlsMinVersion", "", "oldest version of TLS; 1.2 always"),
    key("legacyCRDMirroring", "false", "whether resources of old API groups are copied"),
];

/// Antrea's features, with whether they are on where the file says nothing.
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
