//! The real kubectl: logs, exec, cp, attach and port-forward, over WebSocket and SPDY.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::wait::until;
use testkit::{Process, Scratch};

use crate::lab::{Kube, Lab, TIMEOUT, output, program, script, server};

/// The settings that make kubectl use SPDY, as older versions do.
const SPDY: [(&str, &str); 2] =
    [("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")];

fn kubectl(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = program(lab.base());
    command.args(["kubectl", "--name", lab.name]).args(arguments);
    command
}

/// Runs kubectl. Returns its output, or exit code and error output.
fn run(lab: &Lab, arguments: &[&str]) -> Result<String, String> {
    output(&kubectl(lab, arguments).output().unwrap())
}

fn with_input(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        output.stdout
    })
}

fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// A kubectl that runs in the background, with its output in a file.
struct Background {
    process: Process,
    scratch: Scratch,
}

impl Background {
    fn start(mut command: Command) -> Self {
        let scratch = Scratch::new().unwrap();
        let file = std::fs::File::create(scratch.path().join("output")).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { process: Process::spawn(command).unwrap(), scratch }
    }

    /// Waits until the output contains a text, and returns the text after it.
    fn said(&self, text: &str) -> String {
        let path = self.scratch.path().join("output");
        let found = || Some(std::fs::read_to_string(&path).unwrap().split_once(text)?.1.to_owned());
        let found = until(format_args!("{text:?}"), TIMEOUT, found);
        found.unwrap_or_else(|error| panic!("{error:#}: {:?}", std::fs::read_to_string(&path)))
    }
}

/// `kubectl port-forward`, and the local port.
fn forward(lab: &Lab, pod: &str, port: u16, env: &[(&str, &str)]) -> (Background, u16) {
    let mut command = kubectl(lab, &["port-forward", "--address=127.0.0.1", pod, &format!(":{port}")]);
    command.envs(env.iter().copied());
    let forward = Background::start(command);
    forward.said(" -> ");
    let local = forward.said("127.0.0.1:").split(' ').next().unwrap().parse().unwrap();
    (forward, local)
}

/// All commands that people use, with an API server of either kind.
fn everything_works(lab: &Lab, api: &Kube) {
    let mut spec = script("node-1", "echo hello; exec sleep 1000");
    spec["containers"][0]["env"] = json!([{"name": "COLOUR", "value": "blue"}]);
    api.pod("shell", spec);
    api.pod("web", server("node-1"));
    api.until_ready("shell");
    api.until_ready("web");

    until("the log", TIMEOUT, || (run(lab, &["logs", "shell"]).unwrap() == "hello\n").then_some(())).unwrap();
    let log = run(lab, &["logs", "shell", "--timestamps", "--tail=1"]).unwrap();
    assert!(log.ends_with("Z hello\n"), "{log}");

    let data = bytes(1_000_000);
    for env in [&[][..], &SPDY] {
        let exec = |arguments: &[&str]| {
            let mut command = kubectl(lab, &[&["exec", "shell"], arguments].concat());
            command.envs(env.iter().copied());
            command
        };
        assert_eq!(output(&exec(&["--", "sh", "-c", "echo $COLOUR"]).output().unwrap()).unwrap(), "blue\n");
        assert_eq!(exec(&["--", "sh", "-c", "exit 7"]).output().unwrap().status.code(), Some(7));
        assert!(with_input(&mut exec(&["-i", "--", "cat"]), &data) == data);
        let (_forward, port) = forward(lab, "web", 80, env);
        let mut curl = Command::new("curl");
        let url = format!("http://127.0.0.1:{port}/hostname");
        assert_eq!(output(&curl.args(["-sS", "--max-time", "20", &url]).output().unwrap()).unwrap(), "web");
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn kubectl_works_with_the_embedded_api() {
    everything_works(Lab::shared(), &Lab::shared().api());
}

#[test]
#[ignore = "needs make kubernetes"]
fn kubectl_works_with_the_real_api() {
    let lab = Lab::start_with("real-kubectl", 1, &["--network", "bridge", "--kubernetes", "real"]);
    everything_works(&lab, &lab.api());
}

#[test]
#[ignore = "needs make kubernetes"]
fn kubectl_copies_files_and_attaches() {
    let (lab, api, scratch) = (Lab::shared(), Lab::shared().api(), Scratch::new().unwrap());
    api.pod("files", script("node-2", "while :; do sleep 0.05; rm /tmp/go 2>/dev/null && echo gone; done"));
    api.until_ready("files");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    std::fs::write(&from, bytes(3_000_000)).unwrap();
    run(lab, &["cp", from.to_str().unwrap(), "files:/var/tmp/data"]).unwrap();
    run(lab, &["cp", "files:/var/tmp/data", to.to_str().unwrap()]).unwrap();
    assert!(std::fs::read(from).unwrap() == std::fs::read(to).unwrap());
    let attach = Background::start(kubectl(lab, &["attach", "files"]));
    // kubectl says so before it connects: the container speaks until it is heard.
    attach.said("command prompt");
    until("output of the container", TIMEOUT, || {
        run(lab, &["exec", "files", "--", "touch", "/tmp/go"]).unwrap();
        attach.said("enter.").contains("gone\n").then_some(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs make kubernetes"]
fn kubectl_reports_what_is_wrong() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod("idle", script("node-3", "exec sleep 1000"));
    let mut done = script("node-3", "echo bye");
    done["restartPolicy"] = json!("Never");
    api.pod("done", done);
    api.until_ready("idle");
    api.until("done", "its end", |pod: &Value| pod["status"]["phase"] == "Succeeded");
    assert_eq!(run(lab, &["logs", "done", "-f"]).unwrap(), "bye\n");
    for (arguments, code, said) in [
        (&["exec", "idle", "--", "no-such-program"][..], 127, "exit code 127"),
        (&["exec", "idle", "--", "/etc/passwd"], 126, "exit code 126"),
        (&["exec", "done", "--", "true"], 1, "completed pod"),
        (&["exec", "nowhere", "--", "true"], 1, "not found"),
        (&["logs", "idle", "-p"], 1, "previous terminated container"),
        (&["logs", "idle", "-c", "x"], 1, "container x is not valid"),
    ] {
        let error = run(lab, arguments).unwrap_err();
        assert!(error.starts_with(&format!("Some({code})")) && error.contains(said), "{arguments:?}: {error}");
    }
    let (forward, port) = forward(lab, "idle", 4444, &[]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    let error = forward.said("error forwarding port 4444");
    assert!(error.contains("refused"), "{error}");
}

#[test]
#[ignore = "needs make kubernetes"]
fn ten_megabytes_pass_through_a_forwarded_port_both_ways() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod("echo", crate::lab::pause("node-3"));
    api.until_ready("echo");
    // Reads everything, and then sends it back: the end of the data has to arrive.
    let listener = lab.netns("node-3", "echo").run(|| TcpListener::bind("127.0.0.1:7")).unwrap().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut peer, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                peer.write_all(&all).unwrap();
            });
        }
    });
    let data = bytes(10_000_000);
    for env in [&[][..], &SPDY] {
        let (_forward, port) = forward(lab, "echo", 7, env);
        let one = |length: usize| {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.write_all(&data[..length]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            answer == data[..length]
        };
        assert!(one(data.len()));
        // Several at once.
        std::thread::scope(|scope| {
            let all: Vec<_> = (1..5).map(|number| scope.spawn(move || one(number * 100_000))).collect();
            assert!(all.into_iter().all(|one| one.join().unwrap()));
        });
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn a_command_and_a_forwarded_connection_end_with_kubectl() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod("left", script("node-2", "exec sleep 1000"));
    api.until_ready("left");
    let processes = || lab.exec("left", &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).unwrap();
    let mut exec = Background::start(kubectl(lab, &["exec", "left", "--", "sleep", "7654"]));
    until("the command", TIMEOUT, || processes().contains("sleep 7654").then_some(())).unwrap();
    let listener = lab.netns("node-2", "left").run(|| TcpListener::bind("127.0.0.1:9")).unwrap().unwrap();
    let (mut forward, port) = forward(lab, "left", 9, &[]);
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    exec.process.kill().unwrap();
    forward.process.kill().unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap_or(0), 0);
    until("the end of the command", TIMEOUT, || (!processes().contains("sleep 7654")).then_some(())).unwrap();
}
