//! The kubelet's server, through the embedded API: logs and commands, and who may use it.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use futures::{AsyncBufReadExt, TryStreamExt};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::LogParams;
use serde_json::{Value, json};
use testkit::wait::until;
use testkit::{Netns, Scratch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::{Kube, Lab, TIMEOUT, output, program, script};

/// A command in a container, as a client over a WebSocket has it.
struct Exec(TokioIo<hyper::upgrade::Upgraded>);

impl Exec {
    /// Starts a command in a Pod; an error is the status and body of the response.
    async fn start(client: &kube::Client, pod: &str, options: &str, command: &[&str]) -> Result<Self, (u16, String)> {
        let command: String = command.iter().map(|word| format!("&command={}", encode(word))).collect();
        let request = http::Request::builder()
            .uri(format!("/api/v1/namespaces/default/pods/{pod}/exec?{options}{command}"))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", "v5.channel.k8s.io")
            .body(kube::client::Body::empty())
            .unwrap();
        let response = client.send(request).await.unwrap();
        if response.status() != 101 {
            let status = response.status().as_u16();
            let body = response.into_body().collect_bytes().await.unwrap();
            return Err((status, String::from_utf8_lossy(&body).into_owned()));
        }
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        Ok(Self(TokioIo::new(hyper::upgrade::on(response).await.unwrap())))
    }

    /// Sends a message, masked with zeros.
    async fn send(&mut self, message: &[u8]) {
        let length = u16::try_from(message.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&[0x82, 0xfe], &length[..], &[0; 4], message].concat()).await.unwrap();
    }

    /// The next message, or the payload of the closing frame.
    async fn next(&mut self) -> Vec<u8> {
        self.0.read_u8().await.unwrap();
        let length = match self.0.read_u8().await.unwrap() {
            126 => usize::from(self.0.read_u16().await.unwrap()),
            short => usize::from(short),
        };
        let mut message = vec![0; length];
        self.0.read_exact(&mut message).await.unwrap();
        message
    }

    /// The output until the end, and the exit code.
    async fn end(mut self) -> (Vec<u8>, u64) {
        let mut all = Vec::new();
        loop {
            let message = self.next().await;
            match message[0] {
                1 | 2 => all.extend_from_slice(&message[1..]),
                3 => {
                    let status: Value = serde_json::from_slice(&message[1..]).unwrap();
                    let code = status["details"]["causes"][0]["message"].as_str().unwrap_or("0").parse().unwrap();
                    return (all, code);
                }
                other => panic!("a message on channel {other}"),
            }
        }
    }
}

/// Percent encoding of all bytes.
fn encode(word: &str) -> String {
    word.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

const OUTPUT: &str = "stdout=true&stderr=true";

fn logs(api: &Kube, pod: &str, params: LogParams) -> Result<String, String> {
    api.wait(api.pods().logs(pod, &params)).map_err(|error| error.to_string())
}

#[test]
fn logs_have_the_lines_that_a_client_asks_for() {
    let api = Lab::shared().api();
    api.pod("logged", script("node-1", "echo one; echo two; printf three; exec sleep 1000"));
    api.until_ready("logged");
    let all = LogParams::default;
    until("two lines", TIMEOUT, || (logs(&api, "logged", all()).unwrap() == "one\ntwo\n").then_some(())).unwrap();
    assert_eq!(logs(&api, "logged", LogParams { tail_lines: Some(1), ..all() }).unwrap(), "two\n");
    assert_eq!(logs(&api, "logged", LogParams { limit_bytes: Some(5), ..all() }).unwrap(), "one\nt");
    let timed = logs(&api, "logged", LogParams { timestamps: true, ..all() }).unwrap();
    let (time, text) = timed.lines().next().unwrap().split_once(' ').unwrap();
    let time: k8s_openapi::jiff::Timestamp = time.parse().unwrap();
    assert_eq!(text, "one");
    let later = LogParams { since_time: Some(time + k8s_openapi::jiff::SignedDuration::from_secs(60)), ..all() };
    assert_eq!(logs(&api, "logged", later).unwrap(), "");
    let previous = logs(&api, "logged", LogParams { previous: true, ..all() }).unwrap_err();
    assert!(previous.contains("previous terminated container \"c\" in pod \"logged\" not found"), "{previous}");
    let wrong = logs(&api, "logged", LogParams { container: Some("x".into()), ..all() }).unwrap_err();
    assert!(wrong.contains("container x is not valid for pod logged"), "{wrong}");
}

#[test]
fn a_log_is_followed_until_its_container_ends_and_the_previous_one_is_kept() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod(
        "followed",
        script("node-2", "echo begun; while ! test -e /tmp/go; do sleep 0.05; done; echo over; exit 3"),
    );
    api.until_ready("followed");
    let params = LogParams { follow: true, ..LogParams::default() };
    let text = api.wait(async {
        let mut lines = api.pods().log_stream("followed", &params).await.unwrap().lines();
        let mut text = lines.try_next().await.unwrap().unwrap();
        lab.exec("followed", &["touch", "/tmp/go"]).unwrap();
        while let Some(line) = lines.try_next().await.unwrap() {
            text = format!("{text} {line}");
        }
        text
    });
    assert_eq!(text, "begun over");
    api.until("followed", "restarted", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    let previous = LogParams { previous: true, ..LogParams::default() };
    assert_eq!(logs(&api, "followed", previous).unwrap(), "begun\nover\n");
    api.delete("followed");
}

#[test]
fn a_container_that_has_not_started_has_neither_a_log_nor_commands() {
    let api = Lab::shared().api();
    api.pod("unstarted", json!({"nodeName": "node-1", "containers": [{"name": "c", "image": "postgres:16"}]}));
    let waiting = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object();
    api.until("unstarted", "waiting", waiting);
    let error = logs(&api, "unstarted", LogParams::default()).unwrap_err();
    assert!(error.contains("container \"c\" in pod \"unstarted\" is waiting to start: ErrImageNeverPull"), "{error}");
    let refused = api.wait(Exec::start(&api.client, "unstarted", OUTPUT, &["true"])).err().unwrap();
    assert_eq!(refused.0, 500);
    assert!(refused.1.contains("container not found (\"c\")"), "{refused:?}");
    let unknown = api.wait(Exec::start(&api.client, "nowhere", OUTPUT, &["true"])).err().unwrap();
    assert_eq!(unknown.0, 404);
}

#[test]
fn a_command_gets_input_and_returns_output_and_exit_code() {
    let api = Lab::shared().api();
    let mut spec = script("node-2", "exec sleep 1000");
    spec["containers"][0]["env"] = json!([{"name": "COLOUR", "value": "blue"}]);
    spec["containers"][0]["workingDir"] = json!("/etc");
    api.pod("commanded", spec);
    api.until_ready("commanded");
    let run = |command: &'static [&str]| {
        let client = api.client.clone();
        async move { Exec::start(&client, "commanded", OUTPUT, command).await.unwrap().end().await }
    };
    let shell = api.wait(run(&["sh", "-c", "echo $COLOUR; pwd; hostname >&2; exit 7"]));
    let (text, code) = (String::from_utf8(shell.0).unwrap(), shell.1);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, code), (vec!["/etc", "blue", "commanded"], 7));
    // As shells report them.
    assert_eq!(api.wait(run(&["no-such-program"])).1, 127);
    assert_eq!(api.wait(run(&["/etc/passwd"])).1, 126);
    assert_eq!(api.wait(run(&["sh", "-c", "kill -9 $$"])).1, 137);
    // Two at once, with any bytes.
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(60_000).collect();
    let echo = async || {
        let options = format!("stdin=true&{OUTPUT}");
        let mut exec = Exec::start(&api.client, "commanded", &options, &["cat"]).await.unwrap();
        exec.send(&[&[0], bytes.as_slice()].concat()).await;
        exec.send(&[255, 0]).await;
        exec.end().await
    };
    let (first, second) = api.wait(async { tokio::join!(echo(), echo()) });
    assert!(first == (bytes.clone(), 0) && second == first);
}

#[test]
fn a_terminal_is_one_of_the_container_and_has_the_size_of_the_client() {
    let api = Lab::shared().api();
    api.pod("terminal", script("node-1", "exec sleep 1000"));
    api.until_ready("terminal");
    let (text, code) = api.wait(async {
        let options = "stdin=true&stdout=true&tty=true";
        let command = ["sh", "-c", "tty; read answer; stty size; echo $TERM; exit 4"];
        let mut exec = Exec::start(&api.client, "terminal", options, &command).await.unwrap();
        exec.send(b"\x04{\"Width\":123,\"Height\":45}").await;
        exec.send(b"\0yes\n").await;
        exec.end().await
    });
    let text = String::from_utf8(text).unwrap();
    let has = |line: &str| text.lines().any(|other| other.trim() == line);
    assert!(has("/dev/pts/0") && has("45 123") && has("xterm") && has("yes") && code == 4, "{text:?} {code}");
}

#[test]
fn a_command_ends_with_its_client() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod("abandoned", script("node-3", "exec sleep 1000"));
    api.until_ready("abandoned");
    let processes = || lab.exec("abandoned", &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).unwrap();
    for options in [OUTPUT, "stdin=true&stdout=true&tty=true"] {
        let command = ["sh", "-c", "sleep 4321 & echo begun; sleep 8765"];
        api.wait(async {
            let mut exec = Exec::start(&api.client, "abandoned", options, &command).await.unwrap();
            assert!(exec.next().await.starts_with(b"\x01begun"));
            assert!(processes().contains("sleep 8765"));
        });
        until("the end of the command", TIMEOUT, || {
            let processes = processes();
            // The first part is the script of this test.
            (!processes.contains("sleep 8765") && !processes.contains("sleep 4321")).then_some(())
        })
        .unwrap();
    }
    api.delete("abandoned");
}

/// Sends a request to the kubelet of node-1 from the namespace of the API server.
fn curl(control: &Netns, arguments: &[&str]) -> Result<String, String> {
    let mut curl = control.command("curl");
    output(&curl.args(["-sS", "--max-time", "10"]).args(arguments).output().unwrap())
}

/// Writes certificate and key of a kubeconfig, and returns them as arguments of curl.
fn identity(kubeconfig: &Path, scratch: &Path) -> [String; 4] {
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    let write = |field: &str| {
        let mut base64 = Command::new("base64");
        let encoded = config["users"][0]["user"][field].as_str();
        let path = scratch.join(field);
        std::fs::write(&path, testkit::process::run(base64.arg("-d"), encoded).unwrap()).unwrap();
        path
    };
    let (certificate, key) = (write("client-certificate-data"), write("client-key-data"));
    ["--cert".to_owned(), certificate.display().to_string(), "--key".to_owned(), key.display().to_string()]
}

#[test]
fn only_the_api_server_can_connect_to_a_kubelet() {
    let lab = Lab::shared();
    let (control, scratch) = (lab.underlay("control"), Scratch::new().unwrap());
    let secure = "https://192.168.1.11:10250/healthz";
    assert!(curl(&control, &["http://192.168.1.11:10250/healthz"]).is_err(), "without TLS");
    assert!(curl(&control, &["-k", secure]).is_err(), "without a certificate");
    for kubeconfig in [lab.home.kubelet_kubeconfig("node-1"), lab.home.kubeconfig()] {
        let identity = identity(&kubeconfig, scratch.path());
        let identity: Vec<_> = identity.iter().map(String::as_str).collect();
        let error = curl(&control, &[&["-k", secure], identity.as_slice()].concat()).unwrap_err();
        assert!(!error.contains("refused"), "the server runs: {error}");
    }
}

#[test]
fn nodes_report_the_capacity_of_the_machine() {
    let api = Lab::shared().api();
    let nodes: Api<Node> = Api::all(api.client.clone());
    let status = api.wait(nodes.get("node-2")).unwrap().status.unwrap();
    let capacity = status.capacity.unwrap();
    let quantity = |name: &str| capacity[name].0.clone();
    assert_eq!(quantity("cpu"), std::thread::available_parallelism().unwrap().to_string());
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.lines().next().unwrap().split_whitespace().nth(1).unwrap();
    assert_eq!(quantity("memory"), format!("{total}Ki"));
    assert_eq!(quantity("pods"), "110");
    let disk = testkit::process::run(Command::new("df").args(["--output=size", "-k", "/"]), None).unwrap();
    assert_eq!(quantity("ephemeral-storage"), format!("{}Ki", disk.lines().last().unwrap().trim()));
    assert_eq!(status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port, 10250);
}

#[test]
fn kubectl_of_the_path_is_used_with_a_note_and_its_exit_code_is_returned() {
    let lab = Lab::shared();
    let scratch = Scratch::new().unwrap();
    let fake = scratch.path().join("kubectl");
    let run = || {
        let mut run = program(lab.base());
        run.args(["kubectl", "--name", lab.name, "get", "pods", "--name", "x", "-h"]);
        run.env("XDG_CACHE_HOME", scratch.path()).env("PATH", scratch.path()).output().unwrap()
    };
    let missing = run();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("`make kubernetes`"), "{missing:?}");
    std::fs::write(&fake, "#!/bin/sh\necho \"$KUBECONFIG $*\"; exit 5\n").unwrap();
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let found = run();
    assert_eq!(found.status.code(), Some(5));
    let said = Bytes::from(found.stdout);
    assert_eq!(said, format!("{} get pods --name x -h\n", lab.home.kubeconfig().display()));
    assert!(String::from_utf8_lossy(&found.stderr).contains("may be of another version"), "{:?}", found.stderr);
}
