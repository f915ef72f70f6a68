//! containerd, and its images. No image is ever pulled: archives are imported at the start.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::process::run;
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::node::daemon::{self, Backoff, Program};
use crate::node::network::{CONFIGURATIONS, PLUGINS};
use crate::plan::Node;
use crate::state::Home;

pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
const CONFIGURATION: &str = "/etc/containerd/config.toml";
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts containerd, and imports the images of the lab.
pub(super) async fn start(home: &Home, node: &Node) -> Result<()> {
    fs::create_dir_all("/etc/containerd")?;
    fs::write(CONFIGURATION, configuration())?;
    let containerd = Program {
        name: "containerd".into(),
        arguments: vec!["--config".into(), CONFIGURATION.into()],
        environment: Vec::new(),
        log: home.node(&node.name).join("containerd.log"),
    };
    let mut child = containerd.start()?;
    let (deadline, mut backoff) = (Instant::now() + START_TIMEOUT, Backoff::default());
    while UnixStream::connect(SOCKET).await.is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}: {}", containerd.log_tail());
        }
        if Instant::now() > deadline {
            bail!("it does not answer at {SOCKET}: {}", containerd.log_tail());
        }
        tokio::time::sleep_until(Instant::now() + backoff.next()).await;
    }
    tokio::spawn(daemon::supervise(containerd, child));
    let images = home.images();
    // Unpacking takes seconds.
    tokio::task::spawn_blocking(move || import_all(&images)).await?
}

fn import_all(images: &std::path::Path) -> Result<()> {
    let mut archives: Vec<_> = fs::read_dir(images)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    archives.sort();
    for archive in archives {
        let mut import = Command::new("ctr");
        import.args(["--namespace=k8s.io", "images", "import"]).arg(&archive);
        run(&mut import, None).with_context(|| format!("cannot import {}", archive.display()))?;
    }
    Ok(())
}

/// containerd as on any Node, within the limits of a machine whose root cannot lower `oom_score_adj` and may lack AppArmor.
fn configuration() -> String {
    format!(
        r#"version = 2
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/antrea-lab:latest"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{CONFIGURATIONS}"
"#
    )
}
