//! The committed code is what the `.proto` files say. `make codegen` writes it.

use std::fs;
use std::path::Path;

use tonic_prost_build::{Config, configure};

/// Set by `make codegen`.
const WRITE: &str = "ANTREA_CODEGEN";

fn check(proto: &str, package: &str, committed: &str, has_server: bool) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = testkit::Scratch::new().unwrap();
    let descriptors = protox::compile([proto], [root.join("proto")]).unwrap();
    // Comments of the messages would be documentation twice; transport is what `server` and `client` are about.
    let mut config = Config::new();
    config.disable_comments(["."]);
    let what = configure().build_transport(false).build_server(has_server).out_dir(out.path());
    what.compile_fds_with_config(descriptors, config).unwrap();
    let generated = fs::read_to_string(out.path().join(format!("{package}.rs"))).unwrap();
    // Not to be documented, formatted or counted.
    let wanted = format!("// @generated from proto/{proto} by `make codegen`; do not edit.\n{generated}");
    let path = root.join(committed);
    if std::env::var_os(WRITE).is_some() {
        fs::write(path, wanted).unwrap();
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{committed} is not what proto/{proto} says.\nFix: run `make codegen` and commit.");
}

#[test]
fn cni_is_generated() {
    check("cni.proto", "antrea.cni.v1", "src/cni/generated.rs", true);
}

#[test]
fn control_is_generated() {
    // Its server has no buffers, so that an agent costs little: `server::grpc`.
    check("control.proto", "antrea.control.v1", "src/control/generated.rs", false);
}
