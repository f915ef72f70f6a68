//! A cluster for a test: the embedded Kubernetes API with the accounts of the manifests, and controllers on loopback.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::control::client::{Credentials, Following, follow};
use apiserver::{ApiServer, Options, Patch};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testkit::{Netns, Process, Scratch};
use types::ObjectName;
use types::control::Batch;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const MANIFESTS: [&str; 2] = [
    include_str!("../../../../deploy/kubernetes/antrea-controller.yml"),
    include_str!("../../../../deploy/kubernetes/antrea-agent.yml"),
];
/// The kinds of the manifests that a test creates, with their plurals.
const KINDS: [(&str, &str); 10] = [
    ("ServiceAccount", "serviceaccounts"),
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("Role", "roles"),
    ("RoleBinding", "rolebindings"),
    ("Service", "services"),
    ("APIService", "apiservices"),
    ("Secret", "secrets"),
    ("ConfigMap", "configmaps"),
    ("Lease", "leases"),
];

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) client: kube::Client,
    dir: Scratch,
    replicas: AtomicUsize,
    netns: Netns,
}

pub(crate) struct Replica {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Replica {
    /// Starts a controller on an address, and waits until it accepts connections. Its files are in `dir`.
    pub(crate) async fn start(
        netns: &Netns,
        dir: &Path,
        address: IpAddr,
        mut config: Value,
        kubeconfig: &Value,
    ) -> Self {
        let file = |name: &str, content: &Value| {
            let path = dir.join(format!("{name}-{address}"));
            fs::write(&path, content.to_string()).unwrap();
            path
        };
        let kubeconfig = file("kubeconfig", kubeconfig);
        config["apiAddress"] = json!(address);
        config["clientConnection"] = json!({"kubeconfig": kubeconfig});
        let mut command = netns.command(env!("CARGO_BIN_EXE_antrea-controller"));
        command.arg("--config").arg(file("conf", &config)).env("POD_NAME", format!("replica-{address}"));
        let log = fs::File::create(dir.join(format!("log-{address}"))).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Process::spawn(command).unwrap();
        let address = SocketAddr::from((address, 10349));
        until("a controller", async || tokio::net::TcpStream::connect(address).await.ok()).await;
        Self { process, address }
    }
}

/// Addresses of controllers, in the network namespace of the test.
pub(crate) const ADDRESSES: [&str; 4] = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];

/// Runs a test in its own network namespace, on one thread, so that all sockets are created there.
pub(crate) fn in_a_namespace<F: Future<Output = ()>>(test: impl FnOnce(Netns) -> F + Send) {
    let netns = Netns::new().unwrap();
    netns.link_up("lo").unwrap();
    for address in ADDRESSES {
        netns.add_address("lo", &format!("{address}/32")).unwrap();
    }
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(netns.clone()));
    };
    netns.run(run).unwrap();
}

/// Waits for a condition.
pub(crate) async fn until<T>(what: &str, mut is_so: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = is_so().await {
                return found;
            }
            let next_try = tokio::time::Instant::now() + Duration::from_millis(20);
            tokio::time::sleep_until(next_try).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

impl Cluster {
    /// With the Nodes n1 and n2, a `web` and a `client` on each, and the policy `default/web`, which lets `client` reach `web`.
    pub(crate) async fn start(netns: Netns) -> Self {
        let dir = Scratch::new().unwrap();
        let data_dir = Some(dir.path().to_owned());
        let service_cidrs = vec!["10.96.0.0/16".parse().unwrap()];
        let server = ApiServer::start(Options { data_dir, service_cidrs, ..Options::default() }).await.unwrap();
        server.write_kubeconfig(&dir.path().join("admin")).unwrap();
        let admin = kube::config::Kubeconfig::read_from(dir.path().join("admin")).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(admin, &options).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let cluster = Self { server, client, dir, replicas: AtomicUsize::new(0), netns };
        for manifest in MANIFESTS {
            cluster.apply(manifest);
        }
        for (node, n) in [("n1", 1), ("n2", 2)] {
            cluster.create("v1", "nodes", "", json!({"metadata": {"name": node}}));
            cluster.pod(&format!("web-{n}"), "web", node, &format!("10.10.{n}.2"));
            cluster.pod(&format!("client-{n}"), "client", node, &format!("10.10.{n}.3"));
        }
        cluster.policy("web", json!([{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}]));
        cluster
    }

    /// Creates the objects of a manifest that tests need.
    pub(crate) fn apply(&self, manifest: &str) {
        for object in serde_saphyr::from_multiple::<Value>(manifest).unwrap() {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some((_, plural)) = KINDS.iter().find(|(kind, _)| *kind == text("/kind")) {
                self.create(&text("/apiVersion"), plural, &text("/metadata/namespace"), object.clone());
            }
        }
    }

    pub(crate) fn create(&self, version: &str, plural: &str, namespace: &str, object: Value) {
        self.server.local().create(version, plural, namespace, object).unwrap();
    }

    pub(crate) fn pod(&self, name: &str, app: &str, node: &str, ip: &str) {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        self.create("v1", "pods", "default", json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}));
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        self.server.local().patch("v1", "pods", "default", name, "status", Patch::Merge, &status).unwrap();
    }

    /// A policy for `app=<name>` with these rules going in.
    pub(crate) fn policy(&self, name: &str, ingress: Value) {
        let spec =
            json!({"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Ingress"], "ingress": ingress});
        let policy = json!({"metadata": {"name": name}, "spec": spec});
        self.create("networking.k8s.io/v1", "networkpolicies", "default", policy);
    }

    /// Starts a controller, and waits until it accepts connections.
    pub(crate) async fn replica(&self) -> Replica {
        self.replica_with(json!({})).await
    }

    /// Starts a controller with a configuration.
    pub(crate) async fn replica_with(&self, config: Value) -> Replica {
        let address = ADDRESSES[self.replicas.fetch_add(1, Ordering::Relaxed)].parse().unwrap();
        let mut kubeconfig: Value =
            serde_saphyr::from_str(&fs::read_to_string(self.dir.path().join("admin")).unwrap()).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": self.token("antrea-controller", None).await});
        Replica::start(&self.netns, self.dir.path(), address, config, &kubeconfig).await
    }

    /// The log of a controller.
    pub(crate) fn log(&self, replica: &Replica) -> String {
        fs::read_to_string(self.dir.path().join(format!("log-{}", replica.address.ip()))).unwrap()
    }

    /// Creates the endpoints of the Service.
    pub(crate) fn announce(&self, replicas: &[&Replica]) {
        let endpoint = |it: &&Replica| json!({"addresses": [it.address.ip()], "conditions": {"ready": true}});
        let labels = json!({"kubernetes.io/service-name": "antrea"});
        let endpoints: Vec<Value> = replicas.iter().map(endpoint).collect();
        let ports = json!([{"name": "api", "port": 10349, "protocol": "TCP"}]);
        let slice = json!({"metadata": {"name": "antrea", "labels": labels}, "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
        self.create("discovery.k8s.io/v1", "endpointslices", "kube-system", slice);
    }

    /// A token of an account, bound to a Node or not.
    pub(crate) async fn token(&self, account: &str, node: Option<&str>) -> String {
        let bound_object_ref = node.map(|node| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: None,
        });
        let spec = Some(TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() });
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "kube-system");
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token.unwrap()
    }

    /// A correctly signed token with the claims of another one, some of them replaced.
    pub(crate) fn forge(&self, token: &str, claims: Value) -> String {
        let (head, rest) = token.split_once('.').unwrap();
        let mut claimed: Value = {
            let claimed = URL_SAFE_NO_PAD.decode(rest.split_once('.').unwrap().0).unwrap();
            serde_json::from_slice(&claimed).unwrap()
        };
        claimed.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let text = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claimed.to_string()));
        let key = fs::read(self.dir.path().join("sa.key")).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key).unwrap();
        let signature = key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The published CA certificates, as PEM.
    pub(crate) async fn published(&self) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        maps.get_opt("antrea-ca").await.unwrap()?.data?.remove("ca.crt")
    }

    pub(crate) async fn credentials(&self, token: String) -> Credentials {
        let ca_bundle = until("the CA certificate", async || self.published().await).await;
        Credentials { ca_bundle, token, server_name: "antrea.kube-system.svc".to_owned() }
    }

    /// Opens the stream of the agent of a Node.
    pub(crate) async fn follow(&self, replica: &Replica, node: &str) -> Following {
        let credentials = self.credentials(self.token("antrea-agent", Some(node)).await).await;
        follow(replica.address, &credentials, node).await.unwrap()
    }
}

pub(crate) async fn next(following: &mut Following) -> Batch {
    tokio::time::timeout(TIMEOUT, following.next()).await.expect("a batch takes too long").unwrap()
}

pub(crate) fn name(name: &str) -> ObjectName {
    ObjectName { namespace: "default".to_owned(), name: name.to_owned() }
}
