//! Certificates and keys of one control plane, all signed by one CA, made with `openssl`.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::run;

/// The common name of the API server's certificate towards aggregated API servers.
pub(super) const FRONT_PROXY: &str = "front-proxy";

/// The file name of the API server's certificate towards kubelets.
pub(super) const KUBELET_CLIENT: &str = "kubelet-client";

/// Client certificates: file name and subject. The API server takes `CN` for the user and `O` for the groups.
const CLIENTS: [(&str, &str); 5] = [
    ("admin", "/O=system:masters/CN=admin"),
    ("controller-manager", "/CN=system:kube-controller-manager"),
    ("scheduler", "/CN=system:kube-scheduler"),
    ("front-proxy", "/CN=front-proxy"),
    (KUBELET_CLIENT, "/O=system:masters/CN=kube-apiserver-kubelet-client"),
];
const SERVER_NAMES: &str = "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,\
                            DNS:kubernetes.default,DNS:kubernetes.default.svc";

/// Makes `ca`, `apiserver` (for a server at `address`), the clients' and `service-account`, each with `.crt` and `.key`,
/// in `dir`.
pub(super) fn generate(dir: &Path, address: IpAddr) -> Result<()> {
    certificate(dir, "ca", "/CN=kubernetes", &["keyUsage=critical,keyCertSign,cRLSign,digitalSignature"], false)?;
    let names = format!("{SERVER_NAMES},IP:{address}");
    server(dir, "apiserver", "/CN=kube-apiserver", &names)?;
    for (name, subject) in CLIENTS {
        client(dir, name, subject)?;
    }
    let mut key = Command::new("openssl");
    key.current_dir(dir).args(["genpkey", "-quiet", "-algorithm", "RSA", "-out", "service-account.key"]);
    run(&mut key, None).map(drop)
}

/// Makes a server certificate with these alternative names and its key: `name`.crt and `name`.key in `dir`.
pub(super) fn server(dir: &Path, name: &str, subject: &str, names: &str) -> Result<()> {
    certificate(dir, name, subject, &[names, "extendedKeyUsage=serverAuth"], true)
}

/// Makes a client certificate and its key: `name`.crt and `name`.key in `dir`.
pub(super) fn client(dir: &Path, name: &str, subject: &str) -> Result<()> {
    certificate(dir, name, subject, &["extendedKeyUsage=clientAuth"], true)
}

/// Standard base64, as kubeconfig files want it.
pub(super) fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let bits = bytes.iter().enumerate().fold(0u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        let digit = |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
        [0, 1, 2, 3].map(|at| if at <= bytes.len() { digit(at) } else { '=' })
    };
    text.as_bytes().chunks(3).flat_map(group).collect()
}

fn certificate(dir: &Path, name: &str, subject: &str, extensions: &[&str], signed: bool) -> Result<()> {
    let mut command = Command::new("openssl");
    command.current_dir(dir).args(["req", "-x509", "-noenc", "-days", "365", "-subj", subject]);
    command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")]);
    if signed {
        command.args(["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    for extension in extensions {
        command.args(["-addext", extension]);
    }
    run(&mut command, None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        for (text, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob~~", "Zm9vYn5+")] {
            assert_eq!(base64(text), encoded);
        }
    }
}
