//! Runs command lines of `kubectl` against a server, and compares their output.
//!
//! The commands are data, in `e2e/compat/kubectl`: a file is a list of [`Command`]s that run in order, in a Namespace
//! of their own. Their output against the real server is in `e2e/compat/golden/kubectl`, as on a terminal, with ages,
//! uids and the like replaced by placeholders.

mod words;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command as Child, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use testkit::Process;
use testkit::wait::until;

use crate::area::data;
use crate::diff::{Allowance, Difference, Report};
use crate::yaml;
use words::Words;

/// How long a command is repeated until its output is as expected.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The `kubectl` to run, and the server it connects to.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// Path of the kubectl program.
    pub program: PathBuf,
    /// Path of the kubeconfig with server and credentials.
    pub kubeconfig: PathBuf,
    /// A directory for kubectl's caches.
    pub home: PathBuf,
}

/// Commands about one subject, from one file.
#[derive(Clone, Debug)]
pub struct Session {
    /// Name of the file without its extension.
    pub name: String,
    /// Commands to run, in order.
    pub commands: Vec<Command>,
}

/// One command line with its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Arguments, separated by blanks; single quotes keep blanks.
    pub run: String,
    /// Text for standard input.
    pub stdin: Option<String>,
    /// Repeat the command until its output contains this text.
    pub until: Option<String>,
    /// End the command after this many lines: for commands that watch.
    pub lines: Option<usize>,
    /// Commands to run while it watches, each after another line of output.
    #[serde(default)]
    pub meanwhile: Vec<String>,
    /// Whether lines may come in any order.
    #[serde(default)]
    pub unordered: bool,
}

/// The output of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Printed {
    /// The command line, without `kubectl`.
    pub command: String,
    /// Standard output, standard error and the exit code, normalised.
    pub output: String,
}

/// Reads all sessions, sorted by name.
pub fn sessions() -> Result<Vec<Session>> {
    let mut files: Vec<_> = fs::read_dir(data().join("kubectl"))?.collect::<Result<Vec<_>, _>>()?;
    files.sort_by_key(fs::DirEntry::path);
    files.iter().map(|file| session(&file.path())).collect()
}

/// Runs all commands of a session in order.
pub fn run(session: &Session, kubectl: &Kubectl) -> Result<Vec<Printed>> {
    let namespace = format!("kubectl-{}", session.name);
    kubectl.output(&["create".into(), "namespace".into(), namespace.clone()], None)?;
    let account = ["get", "serviceaccount", "default", "-n", &namespace].map(str::to_owned);
    let _ = until("the default ServiceAccount", TIMEOUT, || {
        kubectl.output(&account, None).ok().filter(|output| !output.contains("[exit"))
    });
    let mut words = Words::default();
    session.commands.iter().map(|command| one(command, kubectl, &namespace, &mut words)).collect()
}

/// The recorded output of a session against the real server.
pub fn golden(session: &Session) -> Result<Vec<Printed>> {
    let file = golden_file(session);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let blocks = text.split("\n$ kubectl ").filter_map(|block| {
        let (command, output) = block.trim_start_matches("$ kubectl ").split_once('\n')?;
        Some(Printed { command: command.to_owned(), output: output.trim_end().to_owned() })
    });
    let printed: Vec<Printed> = blocks.collect();
    let current =
        printed.iter().map(|printed| &printed.command).eq(session.commands.iter().map(|command| &command.run));
    ensure!(current, "the commands of {} have changed: record them with `RECORD=1 make test-kubernetes`", session.name);
    Ok(printed)
}

/// Records the output of a session against the real server.
pub fn record(session: &Session, printed: &[Printed]) -> Result<()> {
    let blocks: Vec<_> = printed.iter().map(|p| format!("$ kubectl {}\n{}\n", p.command, p.output)).collect();
    let file = golden_file(session);
    fs::write(&file, blocks.join("\n")).with_context(|| format!("cannot write {}", file.display()))
}

/// Compares the output of a session against two servers, line by line; steps are named `kubectl-<session>/<command>`.
pub fn compare(session: &str, expected: &[Printed], actual: &[Printed], allowed: &[Allowance]) -> Report {
    let mut report = Report { steps: expected.len(), ..Report::default() };
    for (left, right) in expected.iter().zip(actual) {
        let step = format!("kubectl-{session}/{}", left.command);
        for (line, expected, actual) in lines_that_differ(&left.output, &right.output) {
            let [expected, actual] = [expected, actual].map(|line| line.map(Into::into));
            report.add(Difference { step: step.clone(), field: format!("line {line}"), expected, actual }, allowed);
        }
    }
    report
}

/// Runs a session, and compares its output with the recorded one.
pub fn check(session: &Session, kubectl: &Kubectl, allowed: &[Allowance]) -> Result<Report> {
    Ok(compare(&session.name, &golden(session)?, &run(session, kubectl)?, allowed))
}

impl Kubectl {
    fn command(&self, args: &[String]) -> Child {
        let mut command = Child::new(&self.program);
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home).current_dir(&self.home);
        command.env("KUBECTL_KUBERC", "false");
        command
    }

    /// Standard output, then standard error, then the exit code if it is not 0.
    fn output(&self, args: &[String], stdin: Option<&str>) -> Result<String> {
        let mut command = self.command(args);
        let input = self.home.join("stdin");
        let stdin = match stdin {
            Some(text) => {
                fs::write(&input, text)?;
                Stdio::from(fs::File::open(&input)?)
            }
            None => Stdio::null(),
        };
        let output = command.stdin(stdin).output().context("cannot run kubectl")?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text += &String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            text += &format!("[exit {}]\n", output.status.code().unwrap_or(-1));
        }
        Ok(text)
    }

    /// The first lines of a command's output, while others run.
    fn watch(&self, args: &[String], lines: usize, meanwhile: &[Vec<String>]) -> Result<String> {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::spawn(command)?;
        let stdout = process.child().stdout.take().context("kubectl has no output")?;
        let (sender, received) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let end = Instant::now() + TIMEOUT;
        let next = || received.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        // Existing objects are printed before the first change.
        let there = lines.saturating_sub(meanwhile.len());
        let mut printed: Vec<_> = (0..there).map_while(|_| next()).collect();
        for command in meanwhile {
            self.output(command, None)?;
            printed.extend(next());
        }
        Ok(printed.join("\n") + "\n")
    }
}

fn one(command: &Command, kubectl: &Kubectl, namespace: &str, words: &mut Words) -> Result<Printed> {
    let in_namespace = |line: &str| {
        let flag = ["--namespace".to_owned(), namespace.to_owned()];
        flag.into_iter().chain(split(&line.replace("${ns}", namespace))).collect::<Vec<_>>()
    };
    let args = in_namespace(&command.run);
    let mut output = String::new();
    match (command.lines, &command.until) {
        (Some(lines), _) => {
            let meanwhile: Vec<_> = command.meanwhile.iter().map(|line| in_namespace(line)).collect();
            output = kubectl.watch(&args, lines, &meanwhile)?;
        }
        (None, Some(wanted)) => {
            // On a timeout, the last output shows the cause.
            let _ = until("the output", TIMEOUT, || {
                output = kubectl.output(&args, command.stdin.as_deref()).unwrap_or_else(|error| error.to_string());
                output.contains(wanted).then_some(())
            });
        }
        (None, None) => output = kubectl.output(&args, command.stdin.as_deref())?,
    }
    words.give(&command.run);
    words.give(command.stdin.as_deref().unwrap_or_default());
    let mut lines: Vec<_> = output.lines().map(|line| words.line(line)).collect();
    if command.unordered {
        lines.sort();
    }
    Ok(Printed { command: command.run.clone(), output: lines.join("\n").trim_end().to_owned() })
}

/// Pairs of lines, with numbers, after the common prefix and before the common suffix of two texts.
fn lines_that_differ<'a>(left: &'a str, right: &'a str) -> Vec<(usize, Option<&'a str>, Option<&'a str>)> {
    let [mut left, mut right] = [left, right].map(|text| text.lines().collect::<Vec<_>>());
    let start = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
    while left.len() > start && right.len() > start && left.last() == right.last() {
        left.pop();
        right.pop();
    }
    let numbers = start..left.len().max(right.len());
    numbers.map(|at| (at + 1, left.get(at).copied(), right.get(at).copied())).collect()
}

/// Splits a command line into its arguments.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![];
    let (mut word, mut quoted) = (None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn session(file: &Path) -> Result<Session> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Session { name, commands: yaml::read(file)? })
}

fn golden_file(session: &Session) -> PathBuf {
    data().join("golden/kubectl").join(format!("{}.txt", session.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks() {
        assert_eq!(split("get pods"), ["get", "pods"]);
        assert_eq!(split("patch pod a -p '{\"a\": 1}' -v=0"), ["patch", "pod", "a", "-p", "{\"a\": 1}", "-v=0"]);
        assert_eq!(split("wait  --for=jsonpath='{.a} {.b}'=1 ''"), ["wait", "--for=jsonpath={.a} {.b}=1", ""]);
    }

    #[test]
    fn every_session_has_recorded_output() {
        for session in sessions().unwrap() {
            golden(&session).unwrap();
        }
    }

    #[test]
    fn different_outputs_are_compared_line_by_line() {
        let printed = |output: &str| [Printed { command: "get pods".into(), output: output.into() }];
        assert_eq!(compare("s", &printed("a\nb"), &printed("a\nb"), &[]).to_string(), "");
        let report = compare("s", &printed("a\nb\ne"), &printed("a\nc\nd\ne"), &[]);
        let fields: Vec<_> = report.differences.iter().map(|difference| difference.field.as_str()).collect();
        assert_eq!(fields, ["line 2", "line 3"], "{report}");
        assert!(report.to_string().starts_with("kubectl-s/get pods\n"), "{report}");
    }
}
