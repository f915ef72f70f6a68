//! The Helm chart: its values are generated from the keys of the programs, and it renders the plain manifests.

mod render_for_kubernetes;
mod values;

use std::fs;
use std::path::{Path, PathBuf};

use values::Program;

pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// `make codegen` updates the files.
#[test]
fn the_chart_has_a_value_for_every_key() {
    let programs = [Program::agent(), Program::controller()];
    let values = values::all(&programs);
    for (name, expected) in [
        ("files/keys.json", values::keys(&values, &programs)),
        ("values.yaml", values::yaml(&values)),
        ("values.schema.json", values::schema(&values, &programs)),
    ] {
        let path = repository("deploy/charts/antrea-rs").join(name);
        if std::env::var_os("ANTREA_CODEGEN").is_some() {
            fs::write(&path, &expected).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "{}: does not match the keys.\nFix: run `make codegen` and commit.", path.display());
    }
}
