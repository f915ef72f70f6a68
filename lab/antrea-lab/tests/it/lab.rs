//! Starts labs for tests, and runs commands in them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::Duration;

use antrea_lab::Home;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use testkit::wait::until;
use testkit::{Netns, Process, Scratch};

use crate::failed;

/// Timeout for the start of a Pod while other tests keep both processors busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the start of a lab; the real API server needs some seconds of processor time.
const START_TIMEOUT: Duration = Duration::from_secs(150);

/// The kernel keeps this much of a program's name.
const CONTROLLER: &str = "antrea-controll";

/// A running lab. It ends with this value, or with the test process.
pub(crate) struct Lab {
    pub(crate) name: &'static str,
    base: PathBuf,
    pub(crate) home: Home,
    pub(crate) process: Process,
    _scratch: Option<Scratch>,
}

static SHARED: LazyLock<Lab> = LazyLock::new(|| {
    let base = std::env::temp_dir().join(format!("antrea-lab-{}", std::process::id()));
    Lab::start_in(base, None, "shared", 3, &["--network", "bridge"])
});

impl Lab {
    /// The lab that tests share: three Nodes in two subnets. It ends with the test process.
    pub(crate) fn shared() -> &'static Self {
        &SHARED
    }

    /// Starts a lab with Debian's bridge plugin.
    pub(crate) fn start(name: &'static str, nodes: u16) -> Self {
        Self::start_with(name, nodes, &["--network", "bridge"])
    }

    /// Starts a lab with these options.
    pub(crate) fn start_with(name: &'static str, nodes: u16, arguments: &[&str]) -> Self {
        let scratch = Scratch::new().unwrap();
        Self::start_in(scratch.path().join("labs"), Some(scratch), name, nodes, arguments)
    }

    fn start_in(base: PathBuf, scratch: Option<Scratch>, name: &'static str, nodes: u16, arguments: &[&str]) -> Self {
        let mut up = program(&base);
        up.args(["up", "--name", name, "--nodes", &nodes.to_string()]).args(arguments);
        if arguments.contains(&"antrea") {
            // For `Drop`.
            up.arg("--record");
        }
        let home = Home::at(base.join(name));
        let mut lab = Self { name, base, home, process: Process::spawn(up).unwrap(), _scratch: scratch };
        let ready = || {
            assert_eq!(lab.process.ended().unwrap(), None, "the lab does not start");
            lab.home.read().unwrap()?.ready.then_some(())
        };
        until(format_args!("the lab {name}"), START_TIMEOUT, ready).unwrap();
        lab
    }

    /// The agents' recordings of a Node.
    pub(crate) fn recording(&self, node: &str, file: &str) -> PathBuf {
        self.home.recording(node).join(file)
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// The supervisor's process id.
    pub(crate) fn supervisor(&self) -> u32 {
        self.home.read().unwrap().unwrap().pid
    }

    /// A network namespace of the underlay: `router`, `fabric`, `control` or `outside`.
    pub(crate) fn underlay(&self, name: &str) -> Netns {
        let lab = self.home.read().unwrap().unwrap();
        let (_, path) = lab.namespaces.iter().find(|(other, _)| other == name).unwrap();
        Netns::open(path).unwrap()
    }

    /// Runs antrea-lab for this lab.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, command: &str, arguments: impl IntoIterator<Item = S>) -> Output {
        let mut run = program(&self.base);
        run.args([command, "--name", self.name]).args(arguments).output().unwrap()
    }

    /// Runs a command in a Pod. Returns its output, or exit code and error output.
    pub(crate) fn exec(&self, pod: &str, command: &[&str]) -> Result<String, String> {
        output(&self.run("exec", [&[pod, "--"], command].concat()))
    }

    /// Runs a command in a Node. Returns its output, or exit code and error output.
    pub(crate) fn node(&self, node: &str, command: &[&str]) -> Result<String, String> {
        output(&self.run("node", [&[node, "--"], command].concat()))
    }

    /// Adds a Node. Returns the progress messages, or exit code and error output.
    pub(crate) fn join(&self) -> Result<String, String> {
        output(&self.run::<&str>("join", []))
    }

    /// Removes a Node from the lab.
    pub(crate) fn leave(&self, node: &str) -> Result<String, String> {
        output(&self.run("leave", [node]))
    }

    /// The init process of a Node.
    pub(crate) fn node_init(&self, node: &str) -> u32 {
        self.home.node_pid(node).unwrap()
    }

    /// The root of a Node's file system, as the host sees it.
    pub(crate) fn root(&self, node: &str) -> PathBuf {
        format!("/proc/{}/root", self.node_init(node)).into()
    }

    /// The network namespace of a Pod of [`pause`] in the namespace `default`.
    pub(crate) fn netns(&self, node: &str, pod: &str) -> Netns {
        self.netns_of(node, "default", pod)
    }

    /// The network namespace of a Pod whose container is called `c`.
    pub(crate) fn netns_of(&self, node: &str, namespace: &str, pod: &str) -> Netns {
        let pid = std::fs::read_to_string(self.home.pod(node, namespace, pod).join("c/pid")).unwrap();
        Netns::open(&self.root(node).join("proc").join(pid.trim()).join("ns/net")).unwrap()
    }

    /// PID of the program in a Node, in the PID namespace of the Node.
    pub(crate) fn pid(&self, node: &str, name: &str) -> Option<u32> {
        let processes = std::fs::read_dir(self.root(node).join("proc")).unwrap();
        let named: BTreeMap<u32, u32> = processes
            .filter_map(|entry| {
                let entry = entry.unwrap();
                let pid = entry.file_name().to_str()?.parse().ok()?;
                let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
                let (head, rest) = stat.rsplit_once(')')?;
                let mut rest = rest.split_whitespace();
                // A zombie has ended.
                let lives = rest.next()? != "Z";
                (lives && head.split_once('(')?.1 == name).then(|| Some((pid, rest.next()?.parse().ok()?)))?
            })
            .collect();
        // A child that is about to become another program still has the name of the one that starts it.
        named.iter().find(|(_, parent)| !named.contains_key(parent)).map(|(pid, _)| *pid)
    }

    /// PIDs of the controllers that run.
    pub(crate) fn controllers(&self) -> Vec<i32> {
        let supervisor = self.supervisor().to_string();
        let read = |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_ours = |pid: &i32| {
            let stat = read(*pid, "stat");
            let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
            read(*pid, "comm").trim() == CONTROLLER && fields.next() != Some("Z") && fields.next() == Some(&supervisor)
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let mut found: Vec<i32> = pids.filter(is_ours).collect();
        found.sort_unstable();
        found
    }

    /// The API, for the administrator. A client belongs to the runtime that made it, so each test makes its own.
    pub(crate) fn api(&self) -> Kube {
        Kube::connect(Kubeconfig::read_from(self.home.kubeconfig()).unwrap())
    }

    /// The API, for a Node's kubelet.
    pub(crate) fn api_as_kubelet(&self, node: &str) -> Kube {
        let admin = Kubeconfig::read_from(self.home.kubeconfig()).unwrap();
        let mut kubelet = Kubeconfig::read_from(self.home.kubelet_kubeconfig(node)).unwrap();
        // The kubelet's URL is reachable only inside the lab.
        kubelet.clusters = admin.clusters;
        Kube::connect(kubelet)
    }
}

impl Drop for Lab {
    /// Keeps the recordings and logs of a lab whose test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", failed::save(&self.home, &failed::directory(self.name)));
        }
    }
}

impl Kube {
    fn connect(kubeconfig: Kubeconfig) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let mut config =
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            config.proxy_url = None;
            kube::Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }
}

/// The output of a command, or its exit code and error output.
pub(crate) fn output(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.code() {
        Some(0) => Ok(text(&output.stdout)),
        code => Err(format!("{code:?}: {}{}", text(&output.stdout), text(&output.stderr))),
    }
}

/// antrea-lab, with a directory of labs of its own.
pub(crate) fn program(base: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antrea-lab"));
    command.env("ANTREA_LAB_DIR", base);
    command
}

/// A blocking client of the Kubernetes API.
pub(crate) struct Kube {
    runtime: tokio::runtime::Runtime,
    pub(crate) client: kube::Client,
}

impl Kube {
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Creates a Pod from its spec, in the namespace `default`.
    pub(crate) fn pod(&self, name: &str, spec: Value) {
        self.apply("v1", "Pod", name, json!({"spec": spec}));
    }

    /// Applies an object of any kind in the namespace `default`.
    pub(crate) fn apply(&self, version: &str, kind: &str, name: &str, mut object: Value) {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let gvk = kube::api::GroupVersionKind::gvk(group, version, kind);
        let resource = kube::api::ApiResource::from_gvk(&gvk);
        let api: Api<kube::api::DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &resource);
        self.wait(api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object))).unwrap();
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let pod = self.wait(self.pods().get_opt(name)).unwrap();
        pod.map(|pod| serde_json::to_value(pod).unwrap())
    }

    /// Waits until `so` holds for a Pod, and returns it.
    pub(crate) fn until(&self, name: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let check = || {
            last = self.get(name)?;
            so(&last).then(|| last.clone())
        };
        let found = until(format_args!("Pod {name}: {what}"), TIMEOUT, check);
        found.unwrap_or_else(|error| panic!("{error:#}\nits status is {:#}", last["status"]))
    }

    /// Waits until a Pod is ready, and returns its addresses.
    pub(crate) fn until_ready(&self, name: &str) -> Vec<String> {
        let pod = self.until(name, "ready", is_ready);
        let ips = pod["status"]["podIPs"].as_array().unwrap();
        ips.iter().map(|ip| ip["ip"].as_str().unwrap().to_owned()).collect()
    }

    /// Deletes a Pod and waits until it is gone.
    pub(crate) fn delete(&self, name: &str) {
        self.wait(self.pods().delete(name, &kube::api::DeleteParams::default())).unwrap();
        until(format_args!("the end of Pod {name}"), TIMEOUT, || self.get(name).is_none().then_some(())).unwrap();
    }
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The spec of a Pod on a Node with one container that runs a shell script.
pub(crate) fn script(node: &str, script: &str) -> Value {
    json!({
        "nodeName": node, "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", script]}],
    })
}

/// The spec of a Pod on a Node that does nothing.
pub(crate) fn pause(node: &str) -> Value {
    json!({"nodeName": node, "containers": [{"name": "c", "image": "pause"}]})
}

/// The spec of a Pod on a Node with an HTTP server on port 80 that returns its name.
pub(crate) fn server(node: &str) -> Value {
    json!({"nodeName": node, "containers": [{"name": "c", "image": "nginx"}]})
}
