//! Plugin and agent over a real socket, also when one of them disconnects.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::cni::{
    Attachment, AttachmentId, Call, Code, Command, ContainerId, Dns, Error, Handler, Interface, InterfaceName,
    Listener, Pod, Release, Route, client,
};
use testkit::Scratch;
use testkit::wait::{TIMEOUT, until};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// A handler that logs the begin and end of each call. Calls for a container with a gate wait until it is opened.
#[derive(Clone, Default)]
struct Agent(Arc<AgentState>);

#[derive(Default)]
struct AgentState {
    log: Mutex<Vec<String>>,
    gates: BTreeMap<&'static str, Semaphore>,
}

impl Agent {
    fn with_gates(gates: &[&'static str]) -> Self {
        let gates = gates.iter().map(|name| (*name, Semaphore::new(0))).collect();
        Self(Arc::new(AgentState { gates, ..AgentState::default() }))
    }

    /// Lets one call for the container continue.
    fn open(&self, gate: &str) {
        self.0.gates[gate].add_permits(1);
    }

    fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    fn wait_for(&self, entry: &str) {
        let seen = || self.log().iter().any(|line| line == entry).then_some(());
        until(format!("{entry} among {:?}", self.log()), TIMEOUT, seen).unwrap();
    }

    async fn pass(&self, what: &str, id: &AttachmentId) {
        let container = id.container.as_str();
        self.0.log.lock().unwrap().push(format!("{what} {container} begins"));
        if let Some(gate) = self.0.gates.get(container) {
            gate.acquire().await.unwrap().forget();
        }
        assert_ne!(container, "panic", "on purpose");
        self.0.log.lock().unwrap().push(format!("{what} {container} ends"));
    }
}

impl Handler for Agent {
    async fn add(&self, call: &Call) -> Result<Attachment, Error> {
        self.pass("ADD", &call.id).await;
        Ok(attachment(call))
    }

    async fn del(&self, release: &Release) -> Result<(), Error> {
        self.pass("DEL", &release.id).await;
        Ok(())
    }

    async fn check(&self, call: &Call, expected: &Attachment) -> Result<(), Error> {
        if *expected == attachment(call) {
            Ok(())
        } else {
            Err(Error::new(Code::Check, "differs").with_details("in everything"))
        }
    }

    async fn status(&self) -> Result<(), Error> {
        Err(Error::new(Code::LimitedConnectivity, "no switch"))
    }

    async fn gc(&self, valid: &[AttachmentId]) -> Result<(), Error> {
        let valid: Vec<_> = valid.iter().map(ToString::to_string).collect();
        self.0.log.lock().unwrap().push(format!("GC but {}", valid.join(", ")));
        Ok(())
    }
}

fn attachment(call: &Call) -> Attachment {
    let host = Interface { name: "web-0-8ec607".into(), mac: "0a:00:00:00:00:01".into(), ..Interface::default() };
    let container = Interface {
        name: call.id.ifname.to_string(),
        mac: "0a:00:00:00:00:02".into(),
        sandbox: call.netns.clone(),
        mtu: call.mtu,
    };
    let ip = ("10.10.0.4/24".parse().unwrap(), Some("10.10.0.1".parse().unwrap()));
    let route = Route { destination: "fd00::/8".parse().unwrap(), gateway: None, mtu: Some(1400) };
    let dns = Dns { nameservers: vec!["10.96.0.10".into()], ..Dns::default() };
    Attachment { routes: vec![route], dns, ..Attachment::of_pair(host, container, [ip]) }
}

fn id(container: &str) -> AttachmentId {
    AttachmentId { container: ContainerId::new(container).unwrap(), ifname: InterfaceName::new("eth0").unwrap() }
}

fn call(container: &str) -> Call {
    Call {
        id: id(container),
        network: "antrea".into(),
        netns: "/var/run/netns/blue".into(),
        pod: Pod::new("default", "web-0", "").unwrap(),
        mtu: Some(1450),
        previous: None,
    }
}

fn release(container: &str) -> Command {
    Command::Del(Release { id: id(container), netns: None, pod: None })
}

struct Server {
    runtime: Runtime,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    socket: PathBuf,
    _directory: Scratch,
}

impl Server {
    fn start(agent: &Agent) -> Self {
        let directory = Scratch::new().unwrap();
        let socket = directory.path().join("antrea/cni.sock");
        let runtime = Runtime::new().unwrap();
        let listener = {
            let _inside = runtime.enter();
            Listener::bind(&socket).unwrap()
        };
        let (stop, stopped) = oneshot::channel();
        let task = runtime.spawn(listener.serve(agent.clone(), async { stopped.await.unwrap() }));
        Self { runtime, task, stop, socket, _directory: directory }
    }

    fn ask(&self, command: &Command) -> Result<Option<Attachment>, Error> {
        self.runtime.block_on(client::call(&self.socket, command, TIMEOUT))
    }

    /// Sends a command without waiting for the reply.
    fn begin(&self, command: Command) -> JoinHandle<Result<Option<Attachment>, Error>> {
        let socket = self.socket.clone();
        self.runtime.spawn(async move { client::call(&socket, &command, TIMEOUT).await })
    }

    /// Waits until the server has no connection.
    fn wait_until_alone(&self) {
        let path = self.socket.to_str().unwrap();
        let sockets =
            || fs::read_to_string("/proc/net/unix").unwrap().lines().filter(|line| line.ends_with(path)).count();
        until("the connections to end", TIMEOUT, || (sockets() == 1).then_some(())).unwrap();
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.runtime.block_on(self.task).unwrap();
        assert!(!self.socket.exists());
    }
}

#[test]
fn every_command_reaches_the_handler_unchanged() {
    let agent = Agent::default();
    let server = Server::start(&agent);
    let mut add = call("a");
    add.previous = Some(attachment(&add));
    assert_eq!(server.ask(&Command::Add(add.clone())).unwrap(), Some(attachment(&add)));
    assert_eq!(server.ask(&Command::Check(add.clone(), attachment(&add))).unwrap(), None);
    let error = server.ask(&Command::Check(add, Attachment::default())).unwrap_err();
    assert_eq!(error, Error::new(Code::Check, "differs").with_details("in everything"));
    assert_eq!(server.ask(&release("a")).unwrap(), None);
    assert_eq!(server.ask(&Command::Status).unwrap_err(), Error::new(Code::LimitedConnectivity, "no switch"));
    assert_eq!(server.ask(&Command::Gc(vec![id("a"), id("b")])).unwrap(), None);
    let log = ["ADD a begins", "ADD a ends", "DEL a begins", "DEL a ends", "GC but a/eth0, b/eth0"];
    assert_eq!(agent.log(), log);
    server.stop();
}

#[test]
fn calls_for_one_container_wait_for_each_other_but_not_for_other_containers() {
    let agent = Agent::with_gates(&["a"]);
    let server = Server::start(&agent);
    let add = server.begin(Command::Add(call("a")));
    agent.wait_for("ADD a begins");
    let del = server.begin(release("a"));
    // None of these waits for it.
    for container in ["b", "c", "b"] {
        server.ask(&Command::Add(call(container))).unwrap();
    }
    agent.open("a");
    server.runtime.block_on(add).unwrap().unwrap();
    agent.open("a");
    server.runtime.block_on(del).unwrap().unwrap();
    let of_a: Vec<_> = agent.log().into_iter().filter(|line| line.contains(" a ")).collect();
    assert_eq!(of_a, ["ADD a begins", "ADD a ends", "DEL a begins", "DEL a ends"]);
    server.stop();
}

#[test]
fn a_running_call_ends_without_its_client_and_a_waiting_one_is_dropped() {
    let agent = Agent::with_gates(&["a"]);
    let server = Server::start(&agent);
    let add = server.begin(Command::Add(call("a")));
    agent.wait_for("ADD a begins");
    let waiting = server.runtime.block_on(client::call(&server.socket, &release("a"), Duration::from_millis(50)));
    let error = waiting.unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    assert!(error.message.contains("did not answer within 0.05 s"), "{error}");
    add.abort();
    assert!(server.runtime.block_on(add).unwrap_err().is_cancelled());
    server.wait_until_alone();
    agent.open("a");
    agent.wait_for("ADD a ends");
    agent.open("a");
    server.ask(&Command::Add(call("a"))).unwrap();
    assert_eq!(agent.log(), ["ADD a begins", "ADD a ends", "ADD a begins", "ADD a ends"]);
    server.stop();
}

#[test]
fn a_stopping_server_completes_running_calls() {
    let agent = Agent::with_gates(&["a"]);
    let server = Server::start(&agent);
    let add = server.begin(Command::Add(call("a")));
    agent.wait_for("ADD a begins");
    let Server { runtime, task, stop, socket, _directory } = server;
    stop.send(()).unwrap();
    until("the socket to go", TIMEOUT, || (!socket.exists()).then_some(())).unwrap();
    let error = runtime.block_on(client::call(&socket, &release("a"), TIMEOUT)).unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater);
    agent.open("a");
    assert_eq!(runtime.block_on(add).unwrap().unwrap(), Some(attachment(&call("a"))));
    runtime.block_on(task).unwrap();
}

#[test]
fn a_panic_in_the_handler_is_an_error_and_the_next_call_succeeds() {
    let server = Server::start(&Agent::default());
    for _ in 0..2 {
        assert_eq!(server.ask(&Command::Add(call("panic"))).unwrap_err().code, Code::Internal);
    }
    server.ask(&Command::Add(call("a"))).unwrap();
    server.stop();
}

#[test]
fn a_missing_agent_is_a_transient_error() {
    let directory = Scratch::new().unwrap();
    let runtime = Runtime::new().unwrap();
    let ask = |path: &Path, command: &Command| runtime.block_on(client::call(path, command, TIMEOUT)).unwrap_err();
    let missing = directory.path().join("cni.sock");
    let stale = directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    for path in [missing, stale] {
        let error = ask(&path, &Command::Add(call("a")));
        assert_eq!(error.code, Code::TryAgainLater);
        assert!(error.details.contains(path.to_str().unwrap()) && error.details.contains("antrea-agent"), "{error}");
        assert_eq!(ask(&path, &release("a")).code, Code::TryAgainLater);
        assert_eq!(ask(&path, &Command::Status).code, Code::NotAvailable);
    }
}

#[test]
fn clients_of_other_protocols_are_rejected_and_do_no_harm() {
    let directory = Scratch::new().unwrap();
    let path = directory.path().join("cni.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let other = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.com ESMTP\r\n").unwrap();
    });
    let runtime = Runtime::new().unwrap();
    let error = runtime.block_on(client::call(&path, &Command::Status, TIMEOUT)).unwrap_err();
    assert!(matches!(error.code, Code::NotAvailable | Code::Rpc), "{error}");
    other.join().unwrap();

    let server = Server::start(&Agent::default());
    let mut stream = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
    std::io::Write::write_all(&mut stream, b"EHLO example.com\r\n").unwrap();
    server.ask(&Command::Add(call("a"))).unwrap();
    server.stop();
}

#[test]
fn the_socket_is_for_root_only_and_replaces_a_stale_one() {
    let directory = Scratch::new().unwrap();
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let path = directory.path().join("new/cni.sock");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let first = Listener::bind(&path).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let error = Listener::bind(&path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("another antrea-agent listens there"), "{error}");
    drop(first);
    assert!(!path.exists());

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let second = Listener::bind(&path).unwrap();
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    // Another agent has replaced the socket in the meantime.
    fs::remove_file(&path).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(second);
    assert!(path.exists());
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_path_that_cannot_be_a_socket_is_an_error_with_a_fix() {
    let directory = Scratch::new().unwrap();
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    for (path, problem) in [
        (file.clone(), "is not a socket; remove it, or set cniSocket"),
        (file.join("cni.sock"), "cannot create its directory"),
        (directory.path().join("a".repeat(200)).join("cni.sock"), "cannot listen"),
        (PathBuf::from("/"), "is not the path of a file"),
    ] {
        let error = Listener::bind(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(problem), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}
