//! The state of a server survives restarts and kills.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use apiserver::{ApiServer, Options};
use serde_json::json;
use testkit::wait::until;

use crate::client::{Client, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_restores_everything() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { data_dir: Some(directory.path().to_owned()), ..Options::default() };
    let (server, client) = start(options.clone()).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let (_, made) = client.post("/api/v1/namespaces/default/services", &service).await;
    let token = server.token_for("default", "default").unwrap();
    let ca = server.ca_pem().to_owned();
    server.stop().await.unwrap();
    let (server, client) = start(options).await;
    assert_eq!(server.ca_pem(), ca);
    assert_eq!(client.get("/api/v1/namespaces/default/services/s").await, (200, made.clone()));
    assert_eq!(Client::new(&server, Some(token)).get("/version").await.0, 200);
    let again =
        json!({"metadata": {"name": "t"}, "spec": {"clusterIP": made["spec"]["clusterIP"], "ports": [{"port": 80}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &again).await.0, 422, "the address is still taken");
}

/// The directory of the process that is killed.
const DIRECTORY: &str = "APISERVER_TEST_DIRECTORY";
/// Number of objects that it creates; then it waits.
const MADE: usize = 500;

/// Kills the process on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kept(directory: &Path) -> Options {
    Options { data_dir: Some(directory.to_owned()), ..Options::default() }
}

#[tokio::main]
async fn make_objects(directory: &Path) {
    let server = ApiServer::start(kept(directory)).await.unwrap();
    let local = server.local();
    for index in 0..MADE {
        let name = format!("m{index}");
        local.create("v1", "configmaps", "default", json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap();
    }
    local.delete("v1", "configmaps", "default", "m0", None).unwrap();
    let changed = json!({"metadata": {"name": "m1"}, "data": {"a": "2"}});
    let changed = local.update("v1", "configmaps", "default", "m1", "", changed).unwrap();
    fs::write(directory.join("done"), changed["metadata"]["resourceVersion"].as_str().unwrap()).unwrap();
    std::future::pending::<()>().await;
}

/// The test runs itself: once as the process that is killed, and once to check the state.
#[test]
fn written_objects_survive_a_kill() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return make_objects(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "restarts::written_objects_survive_a_kill"]).env(DIRECTORY, directory.path());
    child.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Killed(child.spawn().unwrap());
    let last = until("the objects", Duration::from_secs(60), || {
        let revision = fs::read_to_string(directory.path().join("done")).ok()?;
        let journal = fs::read_to_string(directory.path().join("journal.jsonl")).ok()?;
        // The journal has a short delay.
        journal.contains(&format!("\"resourceVersion\":\"{revision}\"")).then(|| revision.parse::<u64>().ok())?
    });
    let last = last.unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // The process may have been killed in the middle of a line.
    let mut journal = OpenOptions::new().append(true).open(directory.path().join("journal.jsonl")).unwrap();
    journal.write_all(b"{\"shelf\":\"/configmaps\",\"key\":\"default/half\",\"obj").unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(ApiServer::start(kept(directory.path()))).unwrap();
    let local = server.local();
    assert!(local.get("v1", "configmaps", "default", "m0").is_err());
    assert_eq!(local.get("v1", "configmaps", "default", "m1").unwrap()["data"]["a"], "2");
    let (maps, revision) = local.list("v1", "configmaps", "default", "").unwrap();
    // All but the deleted one, and the CA of the server.
    assert_eq!(maps.len(), MADE);
    assert!(revision > last, "a revision that may have been used is not used again: {revision}");
}
