//! Running code in network namespaces.

use std::fs;
use std::path::Path;

use host::Netns;

#[test]
fn work_runs_inside_and_the_caller_stays_outside() {
    let inside = testkit::Netns::new().unwrap();
    inside.ip(["link", "add", "only-inside", "type", "bridge"]).unwrap();
    let netns = Netns::open(&inside.path()).unwrap();
    let before = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let devices = netns.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    assert!(devices.contains("only-inside"), "{devices}");
    assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
    // The caller's thread did not change its namespace.
    assert!(!fs::read_to_string("/proc/thread-self/net/dev").unwrap().contains("only-inside"));
}

#[test]
fn a_path_that_is_not_a_network_namespace_is_rejected() {
    let scratch = testkit::Scratch::new().unwrap();
    let gone = scratch.path().join("gone");
    let error = Netns::open(&gone).unwrap_err().to_string();
    let path = gone.display();
    assert!(error.starts_with(&format!("network namespace {path}: cannot be opened: No such file")), "{error}");
    assert!(error.ends_with("the sandbox that it belongs to has ended, or the path is wrong"), "{error}");

    // The file that is left after a namespace was unmounted.
    let empty = scratch.path().join("empty");
    fs::write(&empty, "").unwrap();
    let error = Netns::open(&empty).unwrap_err().to_string();
    assert!(error.contains("is not a namespace; the sandbox that it belonged to has ended"), "{error}");

    let other = Netns::open(Path::new("/proc/self/ns/uts")).unwrap();
    let error = other.run(|| ()).unwrap_err().to_string();
    assert!(error.contains("is a namespace, but not a network namespace"), "{error}");
}
