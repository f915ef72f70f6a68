//! Where the programs are that `make kubernetes` builds and installs.

use std::env;
use std::path::PathBuf;

/// The version that `e2e/kubernetes/go.mod` pins.
const GO_MOD: &str = include_str!("../../../../e2e/kubernetes/go.mod");

const BUILT: [&str; 7] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"];
const INSTALLED: &str = "openssl";

/// The path of one of the programs: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet or
/// kubectl.
pub fn program(name: &str) -> PathBuf {
    dir().join(name)
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
    let mut lines = GO_MOD.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix("require ").unwrap_or(line).strip_prefix("k8s.io/kubernetes "));
    line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default()
}

fn dir() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("antrea-rs/kubernetes").join(version())
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
