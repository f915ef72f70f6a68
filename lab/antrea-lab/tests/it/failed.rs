//! Keeps the recordings and logs of a lab whose test fails, as the directory of the lab is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use antrea_lab::Home;
use testkit::Scratch;

/// The files of an agent's recording, the one in progress first.
const RECORDINGS: [&str; 2] = ["events.jsonl", "events.old.jsonl"];

/// The directory for the files of a lab: `failed/NAME` in the target directory.
pub(crate) fn directory(lab: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_antrea-lab")).ancestors().nth(2).unwrap();
    target.join("failed").join(lab)
}

/// Copies the recordings and logs of a lab, in place of those of an earlier failure. Returns a message for the developer, also
/// about an error: this runs while a test panics.
pub(crate) fn save(home: &Home, to: &Path) -> String {
    match copy(home, to) {
        Ok(recordings) => {
            let hints = recordings.iter().map(|file| format!("\n  antctl replay {}", file.display()));
            format!("logs and recordings of the lab are in {}{}", to.display(), hints.collect::<String>())
        }
        Err(error) => format!("cannot save logs and recordings of the lab to {}: {error}", to.display()),
    }
}

/// Returns the paths of the copied recordings.
fn copy(home: &Home, to: &Path) -> io::Result<Vec<PathBuf>> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    copy_logs(home.path(), to)?;
    let nodes = home.path().join("nodes");
    let mut names = Vec::new();
    if nodes.exists() {
        for node in fs::read_dir(nodes)? {
            names.extend(node?.file_name().into_string());
        }
    }
    names.sort();
    let mut recordings = Vec::new();
    for node in names {
        let to = to.join(&node);
        fs::create_dir(&to)?;
        copy_logs(&home.node(&node), &to)?;
        for name in RECORDINGS {
            let from = home.recording(&node).join(name);
            if from.exists() {
                fs::copy(from, to.join(name))?;
                recordings.push(to.join(name));
            }
        }
    }
    Ok(recordings)
}

fn copy_logs(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|extension| extension == "log")) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

#[test]
fn recordings_and_logs_of_a_failed_lab_are_saved_with_the_commands_to_replay_them() {
    let scratch = Scratch::new().unwrap();
    let (home, to) = (Home::at(scratch.path().join("lab")), scratch.path().join("target/failed/lab"));
    let write = |path: PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(home.path().join("supervisor.log"), "supervisor");
    for node in ["node-1", "node-2"] {
        write(home.node(node).join("antrea-agent.log"), node);
        write(home.node(node).join("antrea-agent.token"), "secret");
        write(home.recording(node).join("events.jsonl"), node);
    }
    write(home.recording("node-1").join("events.old.jsonl"), "before");
    // A Node that did not start has no files.
    fs::create_dir(home.node("node-3")).unwrap();
    write(to.join("node-9/events.jsonl"), "of an earlier failure");

    let message = save(&home, &to);
    let files = [
        "node-1/antrea-agent.log",
        "node-1/events.jsonl",
        "node-1/events.old.jsonl",
        "node-2/antrea-agent.log",
        "node-2/events.jsonl",
        "supervisor.log",
    ];
    assert_eq!(files_below(&to, ""), files);
    assert_eq!(fs::read_to_string(to.join("node-1/events.old.jsonl")).unwrap(), "before");
    for file in files.iter().filter(|file| file.ends_with(".jsonl")) {
        let command = format!("antctl replay {}\n", to.join(file).display());
        assert!(format!("{message}\n").contains(&command), "{message}");
    }
    // It runs while a test panics, so it reports an error instead of a second panic.
    let error = save(&Home::at(scratch.path().join("missing")), &to);
    assert!(error.starts_with("cannot save"), "{error}");
}

/// Paths of all files below a directory, sorted.
fn files_below(directory: &Path, prefix: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(files_below(&entry.path(), &format!("{name}/"))),
            false => files.push(name),
        }
    }
    files.sort();
    files
}
