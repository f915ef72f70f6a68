use std::path::PathBuf;
use std::process::Command;

use apiserver::Options;

use crate::client::start;

fn kubectl() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let program = cache.join("antrea-rs/kubernetes/v1.36.3/kubectl");
    program.exists().then_some(program)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_with_it() {
    let Some(program) = kubectl() else {
        println!("skipped: no kubectl (make kubernetes builds it)");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = start(Options::default()).await;
    let config = directory.path().join("config");
    server.write_kubeconfig(&config).unwrap();
    let manifest = directory.path().join("manifest.yaml");
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {a: b}}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n";
    std::fs::write(&manifest, text).unwrap();
    let manifest = manifest.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(&program)
            .env("KUBECONFIG", &config)
            .env("HOME", directory.path())
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap();
        (output.status.success(), text)
    };
    for (arguments, expected) in [
        (&["create", "configmap", "c", "--from-literal=k=v"][..], "configmap/c created"),
        (&["get", "configmaps"], "NAME"),
        (&["get", "cm", "c", "-o", "jsonpath={.data.k}"], "v"),
        (&["apply", "-f", manifest], "service/web created"),
        (&["apply", "-f", manifest], "service/web unchanged"),
        (&["apply", "--server-side", "--force-conflicts", "-f", manifest], "service/web serverside-applied"),
        (&["get", "svc", "-A", "-o", "wide", "-l", "a=b"], "app=web"),
        (&["describe", "svc", "web"], "Selector:"),
        (&["label", "svc", "web", "x=y"], "service/web labeled"),
        (&["annotate", "svc", "web", "x=y"], "service/web annotated"),
        (&["patch", "svc", "web", "-p", "{\"spec\":{\"type\":\"NodePort\"}}"], "service/web patched"),
        (&["create", "deployment", "d", "--image=nginx:1", "--replicas=2"], "deployment.apps/d created"),
        (&["wait", "--for=jsonpath={.status.replicas}=2", "deployment/d", "--timeout=20s"], "condition met"),
        (&["scale", "deployment", "d", "--replicas=1"], "deployment.apps/d scaled"),
        (&["api-resources"], "networkpolicies"),
        (&["auth", "can-i", "create", "pods"], "yes"),
        (&["explain", "service.spec.ports"], "targetPort"),
        (&["replace", "-f", manifest], "service/web replaced"),
        (&["delete", "svc", "web"], "deleted"),
        (&["create", "namespace", "gone"], "namespace/gone created"),
        (&["delete", "namespace", "gone", "--timeout=20s"], "deleted"),
    ] {
        let (good, text) = run(arguments);
        assert!(good && text.contains(expected), "kubectl {arguments:?}: {text}");
    }
}
