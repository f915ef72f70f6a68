//! A cluster with a real kubelet and containerd, in which antrea-rs is installed as a user does it: the image of
//! `scripts/image`, and `kubectl apply -f deploy/kubernetes/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::Scratch;
use testkit::process::run;
use testkit::wait::until;

use super::troubleshooting;
use crate::lab::{Lab, TIMEOUT};

pub(super) const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes");
const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/image");
pub(super) const ROLLOUT: Duration = Duration::from_secs(180);

/// A server with a host port and limited bandwidth, so that both chained plugins have work; a client; and a policy that keeps
/// every other Pod from the server.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
  annotations: {kubernetes.io/ingress-bandwidth: 100M, kubernetes.io/egress-bandwidth: 100M}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: web
      image: registry.k8s.io/e2e-test-images/agnhost:2.53
      args: [netexec, --http-port=8080]
      ports: [{containerPort: 8080, hostPort: 18080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, labels: {app: client}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: client, image: antrea-lab, imagePullPolicy: IfNotPresent}]
---
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: stranger, image: antrea-lab, imagePullPolicy: IfNotPresent}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
    - from:
        - podSelector: {matchLabels: {app: client}}
        - ipBlock: {cidr: 192.168.0.0/16}
        - ipBlock: {cidr: 203.0.113.0/24}
"#;

/// One HTTP request with nothing but bash, which is in the image: `bash -c GET ADDRESS PORT`.
const GET: &str = r#"exec 3<>"/dev/tcp/$0/$1" && printf 'GET /hostname HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3"#;

/// Archives of the product's image and of the lab's, from the programs of this build.
fn images(directory: &Path) -> [PathBuf; 2] {
    let programs = Path::new(env!("CARGO_BIN_EXE_antrea-lab")).parent().unwrap();
    let [product, lab] = ["antrea-rs.tar", "lab.tar"].map(|name| directory.join(name));
    let mut build = Command::new(IMAGE);
    build.arg("--programs").arg(programs).arg("--output").arg(&product).arg("--lab").arg(&lab);
    run(&mut build, None).unwrap();
    [product, lab]
}

impl Lab {
    pub(super) fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
        let mut kubectl = Command::new(testkit::kubernetes::program("kubectl"));
        kubectl.env("KUBECONFIG", self.home.kubeconfig()).args(arguments);
        run(&mut kubectl, input).map_err(|error| format!("{error:#}"))
    }

    /// A request from a Pod.
    fn get_from(&self, pod: &str, address: &str, port: &str) -> Result<String, String> {
        self.kubectl(&["exec", pod, "--", "timeout", "2", "bash", "-c", GET, address, port], None)
    }

    pub(super) fn until_installed(&self) {
        for daemon_set in ["antrea-ovs", "antrea-agent"] {
            let timeout = format!("--timeout={}s", ROLLOUT.as_secs());
            self.kubectl(&["-n", "kube-system", "rollout", "status", "daemonset", daemon_set, &timeout], None).unwrap();
        }
        self.kubectl(&["wait", "node", "--all", "--for=condition=Ready", "--timeout=60s"], None).unwrap();
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn a_cluster_with_a_real_kubelet_is_installed_with_kubectl_and_connects_pods() {
    let scratch = Scratch::new().unwrap();
    let [product, lab_image] = images(scratch.path());
    let other = Scratch::new().unwrap();
    let again = images(other.path())[0].clone();
    assert!(std::fs::read(&product).unwrap() == std::fs::read(again).unwrap(), "the image is not reproducible");
    let images = [product, lab_image].map(|path| path.display().to_string());
    let options = ["--kubernetes", "real", "--kubelet", "real", "--network", "none", "--services", "both"];
    let options = [&options[..], &["--image", &images[0], "--image", &images[1]]].concat();
    let lab = Lab::start_with("real-kubelet", 1, &options);
    troubleshooting::check(&lab);

    // As a user does it: the whole directory. Once more changes nothing.
    let again = lab.kubectl(&["apply", "-f", MANIFESTS], None).unwrap();
    let changed: Vec<_> = again.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    // kubectl always replaces the selector of a PodDisruptionBudget.
    assert_eq!(changed, ["poddisruptionbudget.policy/antrea-controller configured"]);

    lab.kubectl(&["apply", "-f", "-"], Some(PODS)).unwrap();
    lab.kubectl(&["wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s"], None).unwrap();
    let address = lab.kubectl(&["get", "pod", "web", "-o", "jsonpath={.status.podIP}"], None).unwrap();
    until("the Pod that the policy allows is answered", TIMEOUT, || lab.get_from("client", &address, "8080").ok())
        .unwrap();
    lab.get_from("stranger", &address, "8080").unwrap_err();
    let host_port = || lab.node("outside", &["curl", "-s", "--max-time", "2", "http://192.168.1.11:18080/hostname"]);
    assert_eq!(host_port().unwrap(), "web");
    let logs =
        lab.kubectl(&["-n", "kube-system", "logs", "daemonset/antrea-agent", "-c", "install-cni"], None).unwrap();
    assert!(logs.contains("portmap: already there") && logs.contains("datapath: "), "{logs}");

    // A new agent finds its Pods; the switch, a Pod of its own, is not restarted.
    let switch = || lab.kubectl(&["-n", "kube-system", "get", "pod", "-l", "component=antrea-ovs", "-o", "name"], None);
    let before = switch().unwrap();
    lab.kubectl(&["-n", "kube-system", "rollout", "restart", "daemonset", "antrea-agent"], None).unwrap();
    lab.until_installed();
    assert_eq!(switch().unwrap(), before);
    lab.get_from("client", &address, "8080").unwrap();
    lab.get_from("stranger", &address, "8080").unwrap_err();

    lab.kubectl(&["delete", "pod", "web", "client", "stranger", "--wait"], None).unwrap();
    host_port().unwrap_err();
    let ports = || {
        let listed = ["-n", "kube-system", "exec", "daemonset/antrea-ovs", "--", "ovs-vsctl", "list-ports", "br-int"];
        lab.kubectl(&listed, None).unwrap()
    };
    // The Pod of the cluster's DNS stays.
    until("no interface of the deleted Pods is left", TIMEOUT, || {
        let pods = ports().lines().filter(|port| !port.starts_with("antrea-")).count();
        (pods <= 1).then_some(())
    })
    .unwrap();
}
