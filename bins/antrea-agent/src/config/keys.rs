//! Every key of `antrea-agent.conf`: Antrea's, whether they have an effect here or not, and the few of our own.

/// A key of the configuration file.
pub(crate) struct Key {
    /// Its path, sections separated by dots.
    pub(crate) path: &'static str,
    /// Its value where the file has none, as YAML; empty if it is then not set at all.
    pub(crate) default: &'static str,
    /// What it says.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the documentation"))]
    pub(crate) about: &'static str,
}

const fn key(path: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { path, default, about }
}

/// The section that switches features on and off; its keys are in [`FEATURES`].
pub(crate) const FEATURE_GATES: &str = "featureGates";

/// All of them, in the order of the documentation.
pub(crate) const KEYS: &[Key] = &[
    // The Node.
    key("ovsBridge", "br-int", "name of the bridge that connects Pods"),
    key("ovsDatapathType", "", "`system` (in the kernel) or `netdev` (in ovs-vswitchd); found out where not set"),
    key("ovsRunDir", "/var/run/openvswitch", "directory with the sockets of Open vSwitch"),
    key("hostGateway", "antrea-gw0", "name of the bridge's port towards the Node"),
    key("cniSocket", "/var/run/antrea/cni.sock", "where antrea-cni finds the agent"),
    key(
        "ipamDir",
        "/var/lib/cni/networks/antrea",
        "ours: directory with the addresses in use, in the format of host-local",
    ),
    key("hostProcPathPrefix", "/host", "directory under which the Node's `/proc` is, for an agent in a Pod"),
    key("transportInterface", "", "interface towards other Nodes; the one with the Node's address where not set"),
    key("transportInterfaceCIDRs", "[]", "networks by which to find that interface"),
    key("nodeType", "k8sNode", "`k8sNode`, or `externalNode` for machines outside of the cluster"),
    // Traffic between Nodes.
    key(
        "trafficEncapMode",
        "encap",
        "`encap`, `noEncap`, `hybrid` (`encap` where Nodes share no subnet) or `networkPolicyOnly`",
    ),
    key("tunnelType", "geneve", "`geneve`, `vxlan`, `gre` or `stt`"),
    key("tunnelPort", "0", "port of the tunnel; 0 for the usual one of its type"),
    key("tunnelCsum", "false", "whether tunnels compute checksums of their outer UDP header"),
    key("trafficEncryptionMode", "none", "`none`, `ipsec` or `wireGuard`"),
    key("enableIPSecTunnel", "false", "what Antrea had before `trafficEncryptionMode: ipsec`"),
    key("wireGuard.port", "51820", "port of WireGuard"),
    key("ipsec.authenticationMode", "psk", "`psk` or `cert`"),
    key("defaultMTU", "0", "MTU of Pods; 0 for what is left of the transport interface's"),
    key("noSNAT", "false", "with `noEncap`: whether Pods keep their addresses outside of the cluster"),
    key("snatFullyRandomPorts", "false", "whether source ports of masqueraded connections are random"),
    key("podCIDRs", "", "with `networkPolicyOnly`: addresses of all Pods"),
    key("enableBridgingMode", "false", "whether Pods with addresses of AntreaIPAM are bridged to the Node's network"),
    key("disableTXChecksumOffload", "false", "whether Pods compute checksums themselves"),
    key("hostNetworkAcceleration.enable", "true", "whether forwarded connections take a short way through the kernel"),
    key("hostNetworkMode", "iptables", "`iptables` or `nftables`; rules are always nftables here"),
    key("packetInRate", "5000", "packets a second that each feature may send to the agent"),
    // Services.
    key("antreaProxy.enable", "true", "whether the agent serves Services"),
    key("antreaProxy.proxyAll", "false", "whether also for the Node and from outside, in place of kube-proxy"),
    key("antreaProxy.nodePortAddresses", "[]", "networks of the Node's addresses that have NodePorts; all where empty"),
    key("antreaProxy.skipServices", "[]", "Services to leave alone, as `namespace/name` or as address"),
    key("antreaProxy.proxyLoadBalancerIPs", "true", "whether addresses of load balancers are served"),
    key("antreaProxy.serviceProxyName", "", "value of `service.kubernetes.io/service-proxy-name` of Services to serve"),
    key(
        "antreaProxy.defaultLoadBalancerMode",
        "nat",
        "`nat` or `dsr`, for connections from outside to Pods of other Nodes",
    ),
    key(
        "antreaProxy.disableServiceHealthCheckServer",
        "false",
        "whether health checks of load balancers go unanswered",
    ),
    key("antreaProxy.serviceHealthCheckServerBindAddress", "0.0.0.0:10256", "where they are answered"),
    key("serviceCIDR", "10.96.0.0/12", "addresses of Services, without AntreaProxy"),
    key("serviceCIDRv6", "", "the same for IPv6"),
    // Interfaces of the agent.
    key("apiPort", "10350", "port of the agent's API"),
    key("enablePrometheusMetrics", "true", "whether it has metrics"),
    key("tlsCipherSuites", "", "cipher suites of TLS 1.2 that it accepts"),
    key("tlsMinVersion", "", "oldest version of TLS that it accepts"),
    key(
        "clientConnection.kubeconfig",
        "",
        "kubeconfig for the Kubernetes API; the ServiceAccount of the Pod where not set",
    ),
    key(
        "antreaClientConnection.kubeconfig",
        "",
        "kubeconfig for antrea-controller; the ServiceAccount of the Pod where not set",
    ),
    key("kubeAPIServerOverride", "", "address of the Kubernetes API that counts more than the kubeconfig's"),
    key("clusterPort", "10351", "port on which agents find out which of them live"),
    key("memberlist.gossipVerifyOutgoing", "true", "whether what they send there is encrypted"),
    key("memberlist.gossipVerifyIncoming", "true", "whether what they receive has to be"),
    // Features.
    key("egress.exceptCIDRs", "[]", "destinations to which no Egress applies"),
    key("egress.maxEgressIPsPerNode", "255", "Egress addresses that a Node may have"),
    key("egress.snatFullyRandomPorts", "", "`snatFullyRandomPorts` for Egresses"),
    key("egress.uniqueMACForSubInterfaces", "true", "whether VLAN interfaces of Egresses have MACs of their own"),
    key("dnsServerOverride", "", "name server for rules with domain names; that of the cluster where not set"),
    key("fqdnCacheMinTTL", "0", "seconds for which answers of name servers count at least"),
    key("nodePortLocal.enable", "false", "whether Pods get ports of the Node"),
    key("nodePortLocal.portRange", "61000-62000", "which"),
    key("flowExporter.enable", "false", "whether connections are exported"),
    key("flowExporter.flowCollectorAddr", "flow-aggregator/flow-aggregator:4739:tls", "where to"),
    key("flowExporter.flowPollInterval", "5s", "how often they are looked at"),
    key("flowExporter.activeFlowExportTimeout", "5s", "how often one with packets is exported"),
    key("flowExporter.idleFlowExportTimeout", "15s", "how long one without packets is waited for"),
    key("flowExporter.protocolFilter", "", "protocols that are exported; all where not set"),
    key("flowCollectorAddr", "", "older name of `flowExporter.flowCollectorAddr`"),
    key("flowPollInterval", "", "older name of `flowExporter.flowPollInterval`"),
    key("activeFlowExportTimeout", "", "older name of `flowExporter.activeFlowExportTimeout`"),
    key("idleFlowExportTimeout", "", "older name of `flowExporter.idleFlowExportTimeout`"),
    key("multicast.enable", "false", "whether multicast is routed"),
    key("multicast.multicastInterfaces", "[]", "through which interfaces"),
    key("multicast.igmpQueryVersions", "[1, 2, 3]", "versions of IGMP by which Pods are asked"),
    key("multicast.igmpQueryInterval", "125s", "how often"),
    key("multicluster.enableGateway", "false", "whether the Node can be a gateway to other clusters"),
    key("multicluster.namespace", "", "namespace of the multi-cluster controller"),
    key("multicluster.enableStretchedNetworkPolicy", "false", "whether policies select Pods of other clusters"),
    key("multicluster.enablePodToPodConnectivity", "false", "whether Pods reach Pods of other clusters"),
    key("multicluster.trafficEncryptionMode", "none", "`none` or `wireGuard`"),
    key("multicluster.wireGuard.port", "51821", "port of WireGuard between clusters"),
    key("externalNode.externalNodeNamespace", "default", "with `externalNode`: namespace of the machine's object"),
    key("externalNode.policyBypassRules", "[]", "with `externalNode`: traffic that no policy applies to"),
    key("auditLogging.maxSize", "500", "megabytes of a log of policies"),
    key("auditLogging.maxBackups", "3", "old logs that are kept"),
    key("auditLogging.maxAge", "28", "days for which they are"),
    key("auditLogging.compress", "true", "whether they are compressed"),
    key("secondaryNetwork.ovsBridges", "[]", "bridges of secondary networks"),
];

/// Keys that are read and checked, and that nothing in the agent uses yet. Whoever does takes his key away from here.
pub(crate) const NOT_YET: &[&str] = &[
    "antreaClientConnection.kubeconfig",
    "enablePrometheusMetrics",
    "hostProcPathPrefix",
    "transportInterface",
    "transportInterfaceCIDRs",
];

/// Antrea's features, with whether they are on where the file says nothing.
pub(crate) const FEATURES: [(&str, bool); 36] = [
    ("AllAlpha", false),
    ("AllBeta", false),
    ("AdminNetworkPolicy", false),
    ("AntreaIPAM", false),
    ("AntreaNodeConfig", true),
    ("AntreaPolicy", true),
    ("AntreaProxy", true),
    ("BGPPolicy", false),
    ("CleanupStaleUDPSvcConntrack", true),
    ("ClusterNetworkPolicy", false),
    ("Egress", true),
    ("EgressSeparateSubnet", true),
    ("EgressTrafficShaping", false),
    ("EndpointSlice", true),
    ("ExternalNode", false),
    ("FlowExporter", false),
    ("IPsecCertAuth", false),
    ("L7NetworkPolicy", false),
    ("LoadBalancerModeDSR", false),
    ("Multicast", true),
    ("Multicluster", false),
    ("NFTablesHostNetworkMode", false),
    ("NetworkPolicyStats", true),
    ("NodeIPAM", true),
    ("NodeLatencyMonitor", false),
    ("NodeNetworkPolicy", false),
    ("NodePortLocal", true),
    ("PacketCapture", false),
    ("PreferSameTrafficDistribution", false),
    ("SecondaryNetwork", false),
    ("ServiceExternalIP", true),
    ("ServiceTrafficDistribution", true),
    ("SupportBundleCollection", false),
    ("TopologyAwareHints", true),
    ("Traceflow", true),
    ("TrafficControl", false),
];
