use std::fs;

use super::keys::{KEYS, SCHEMA};
use super::*;

fn problem(text: &str) -> String {
    Config::read("controller.conf", text).unwrap_err().to_string()
}

fn section(path: &str, value: &str) -> String {
    match path.split_once('.') {
        None => format!("{path}: {value}\n"),
        Some((section, key)) => format!("{section}:\n  {key}: {value}\n"),
    }
}

#[test]
fn the_documented_default_of_every_key_changes_nothing_and_is_not_logged() {
    let (defaults, _) = Config::load(None).unwrap();
    assert_eq!((defaults.api_port, defaults.node_ipam.enable_node_ipam), (10349, false));
    for key in KEYS {
        let read = Config::read("controller.conf", &section(key.path, key.default)).unwrap();
        assert_eq!(read, (defaults.clone(), vec![]), "{}", key.path);
    }
}

#[test]
fn a_key_without_effect_is_logged() {
    let mut reader = Reader::empty(&SCHEMA);
    Config::ask(&mut reader);
    for key in KEYS.iter().filter(|key| !reader.was_asked(key.path)) {
        let (_, notes) = Config::read("controller.conf", &section(key.path, "12345")).unwrap();
        assert_eq!(notes, [format!("{}: is not implemented yet, so `12345` has no effect", key.path)]);
    }
}

#[test]
fn values_are_read() {
    let text = "apiPort: 1234\napiAddress: 192.0.2.1\nenablePrometheusMetrics: false\nkubeAPIServerOverride: https://x\n\
                clientConnection: {kubeconfig: /k}\nnodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.0/8, 'fd00::/48'], \
                serviceCIDR: 10.96.0.0/12, nodeCIDRMaskSizeIPv4: 25}\n";
    let (config, notes) = Config::read("controller.conf", text).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!((config.api_port, config.api_address), (1234, Some([192, 0, 2, 1].into())));
    assert_eq!(config.client_connection.kubeconfig, Some("/k".into()));
    let ipam = config.node_ipam;
    assert!(ipam.enable_node_ipam && !config.enable_prometheus_metrics);
    assert_eq!((ipam.cluster_cidrs.len(), ipam.mask_size_v4, ipam.mask_size_v6), (2, 25, 64));
}

#[test]
fn an_invalid_value_is_an_error_with_the_key_and_the_allowed_values() {
    for (text, expected) in [
        ("apiPrt: 1", "apiPrt: there is no such key; did you mean apiPort?"),
        ("apiPort: 70000", "apiPort: `70000` is not 0 or a number from 1 to 65535"),
        ("selfSignedCert: false", "selfSignedCert: `false` is not implemented yet; it can be true"),
        ("nodeIPAM: {enableNodeIPAM: true}", "nodeIPAM.clusterCIDRs: is needed where nodeIPAM.enableNodeIPAM is true"),
        (
            "nodeIPAM: {enableNodeIPAM: true, clusterCIDRs: [10.0.0.0/25]}",
            "nodeIPAM.clusterCIDRs[0]: `10.0.0.0/25` is smaller than one Node's subnet: nodeIPAM.nodeCIDRMaskSizeIPv4 is 24",
        ),
    ] {
        assert_eq!(problem(text), format!("controller.conf: {expected}"));
    }
}

#[test]
fn the_documentation_has_every_key() {
    let mut reader = Reader::empty(&SCHEMA);
    Config::ask(&mut reader);
    let table = ::config::document(&SCHEMA, &reader);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/controller.md");
    let document = fs::read_to_string(&path).unwrap();
    let mark = "<!-- From here on written by `make codegen`. -->\n\n";
    let (head, found) = document.split_once(mark).unwrap();
    if std::env::var_os("ANTREA_CODEGEN").is_some() {
        fs::write(path, format!("{head}{mark}{table}")).unwrap();
        return;
    }
    assert!(found == table, "docs/controller.md is not what the keys are.\nFix: run `make codegen` and commit.");
}
