//! The real kubectl against the embedded server: compares its output with that against the real server.

use apiserver::{ApiServer, Options};
use compat::kubectl::{Kubectl, check, sessions};
use testkit::kubernetes::program;

use crate::recorded::{accepted, verdict};

/// Checks a session against a server of its own. Differences must be listed in `tests/accepted/kubectl-<session>.yaml`.
async fn session(name: &'static str) {
    let options = Options { service_cidrs: vec!["10.96.0.0/16".parse().unwrap()], ..Options::default() };
    let server = ApiServer::start(options).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("config");
    std::fs::write(&kubeconfig, server.kubeconfig("admin", Some("system:masters")).unwrap()).unwrap();
    let kubectl = Kubectl { program: program("kubectl"), kubeconfig, home: home.path().to_owned() };
    let checked = tokio::task::spawn_blocking(move || {
        let session = sessions().unwrap().into_iter().find(|session| session.name == name).unwrap();
        let accepted = accepted(&format!("kubectl-{name}"));
        (check(&session, &kubectl, &accepted).unwrap(), accepted)
    });
    let (report, accepted) = checked.await.unwrap();
    verdict(&format!("kubectl-{name}"), &report, &accepted);
}

macro_rules! sessions {
    ($($name:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "needs make kubernetes"]
        async fn $name() {
            session(stringify!($name).strip_prefix("kubernetes_").unwrap()).await;
        })*

        #[test]
        fn every_session_is_tested() {
            let all: Vec<_> = sessions().unwrap().into_iter().map(|session| format!("kubernetes_{}", session.name)).collect();
            assert_eq!(all, [$(stringify!($name)),*]);
        }
    };
}

sessions!(kubernetes_reading kubernetes_server kubernetes_writing);
