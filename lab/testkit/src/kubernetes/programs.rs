//! Where the programs are that `make kubernetes` builds and installs.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, ensure};

/// The version that `e2e/kubernetes/go.mod` pins.
const GO_MOD: &str = include_str!("../../../../e2e/kubernetes/go.mod");
/// The same for Helm.
const HELM_GO_MOD: &str = include_str!("../../../../e2e/helm/go.mod");

const BUILT: [&str; 7] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"];
const INSTALLED: &str = "openssl";

/// The path of one of the programs: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet or
/// kubectl.
pub fn program(name: &str) -> PathBuf {
    dir().join(name)
}

/// The path of Helm, which `make kubernetes` builds too.
pub fn helm() -> Result<PathBuf> {
    let path = cache().join("helm").join(pinned(HELM_GO_MOD, "helm.sh/helm/v4")).join("helm");
    ensure!(path.is_file(), "{} is missing; run `make kubernetes`", path.display());
    Ok(path)
}

/// The first program that is not there.
pub(super) fn missing() -> Option<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let built = BUILT.into_iter().find(|name| !program(name).is_file());
    built.or_else(|| (!on_path(INSTALLED)).then_some(INSTALLED))
}

/// The pinned version, such as `v1.36.3`.
pub(super) fn version() -> &'static str {
    pinned(GO_MOD, "k8s.io/kubernetes")
}

fn pinned(go_mod: &'static str, module: &str) -> &'static str {
    let mut lines = go_mod.lines().map(str::trim);
    let line =
        lines.find_map(|line| line.strip_prefix("require ").unwrap_or(line).strip_prefix(module)?.strip_prefix(' '));
    line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default()
}

fn dir() -> PathBuf {
    cache().join("kubernetes").join(version())
}

fn cache() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("antrea-rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_pinned_one() {
        let numbers: Vec<_> = version().strip_prefix("v1.").unwrap().split('.').collect();
        assert!(numbers.len() == 2 && numbers.iter().all(|number| number.parse::<u32>().is_ok()), "{}", version());
    }
}
