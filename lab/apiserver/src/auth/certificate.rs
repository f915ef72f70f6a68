//! The CA of a server, and the user that a client certificate names.

use std::path::Path;

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use super::User;

/// The user as which the server forwards requests to backends of APIServices, which trust its `X-Remote-*` headers.
pub(crate) const FRONT_PROXY: &str = "front-proxy";

/// The user as which the server connects to kubelets.
pub(crate) const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The CA that signs the certificates of a server and of its clients.
pub(crate) struct Authority {
    /// The CA certificate in PEM.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the CA from a directory, or creates one and writes it there.
    pub(crate) fn load(directory: Option<&Path>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let files = directory.map(|directory| (directory.join("ca.crt"), directory.join("ca.key")));
        if let Some((certificate, key)) =
            files.as_ref().filter(|(certificate, key)| certificate.exists() && key.exists())
        {
            let (pem, key) =
                (std::fs::read_to_string(certificate)?, KeyPair::from_pem(&std::fs::read_to_string(key)?)?);
            return Ok(Self { pem, issuer: Issuer::new(parameters(), key) });
        }
        let key = KeyPair::generate()?;
        let pem = parameters().self_signed(&key)?.pem();
        if let Some((certificate, file)) = files {
            std::fs::write(certificate, &pem)?;
            super::token::write_private(&file, key.serialize_pem().as_bytes())?;
        }
        Ok(Self { pem, issuer: Issuer::new(parameters(), key) })
    }

    /// Issues a certificate for a server with these names and addresses.
    pub(crate) fn server(&self, common: &str, names: &[String]) -> Result<Identity, rcgen::Error> {
        let mut parameters = CertificateParams::new(names.to_vec())?;
        parameters.distinguished_name = name(common, None);
        self.sign(parameters, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a certificate for a user, with one group at most (a name has one organization).
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, rcgen::Error> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.distinguished_name = name(user, group);
        parameters.subject_alt_names = Vec::<SanType>::new();
        self.sign(parameters, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A kubeconfig for the API at `url`, with a certificate for a user, with one group at most.
    pub(crate) fn kubeconfig(&self, url: &str, user: &str, group: Option<&str>) -> Result<String, rcgen::Error> {
        let Identity { certificate, key } = self.client(user, group)?;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let (ca, certificate, key) = (encode(&self.pem), encode(&certificate), encode(&key));
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: cluster\nclusters:\n- name: cluster\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca}\ncontexts:\n- name: cluster\n  context:\n    cluster: cluster\n    user: {user}\nusers:\n- \
             name: {user}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n",
        ))
    }

    fn sign(
        &self,
        mut parameters: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, rcgen::Error> {
        parameters.extended_key_usages = vec![usage];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn parameters() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name("antrea-rs", None);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    parameters
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common);
    name
}

/// The user of a client certificate.
pub(crate) fn certified(der: &[u8]) -> Option<User> {
    let (name, groups) = subject(der)?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let groups: Vec<_> = groups.iter().map(String::as_str).collect();
    let extra = json!({"authentication.kubernetes.io/credential-id": [format!("X509SHA256={digest}")]});
    Some(User { extra, ..User::named(&name, &groups) })
}

/// The common name and the organizations of a certificate (DER) whose signature has been checked.
fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    let (certificate, _) = element(der)?;
    let (body, _) = element(certificate)?;
    let mut rest = body;
    // The version is tagged and optional; then serial number, algorithm, issuer and validity.
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.1;
    }
    for _ in 0..4 {
        rest = element(rest)?.1;
    }
    let (mut sets, _) = element(rest)?;
    let (mut common, mut organizations) = (None, Vec::new());
    while !sets.is_empty() {
        let (mut pairs, after) = element(sets)?;
        while !pairs.is_empty() {
            let (pair, more) = element(pairs)?;
            let (kind, value) = element(pair)?;
            let text = String::from_utf8(element(value)?.0.to_vec()).ok()?;
            match kind {
                [0x55, 0x04, 0x03] => common = Some(text),
                [0x55, 0x04, 0x0a] => organizations.push(text),
                _ => {}
            }
            pairs = more;
        }
        sets = after;
    }
    Some((common?, organizations))
}

/// The content of the first DER element, and the rest.
fn element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match bytes.get(1..)? {
        [short, rest @ ..] if *short < 0x80 => (usize::from(*short), rest),
        [0x81, a, rest @ ..] => (usize::from(*a), rest),
        [0x82, a, b, rest @ ..] => (usize::from(u16::from_be_bytes([*a, *b])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};

    #[test]
    fn a_certificate_names_its_user_and_groups() {
        let authority = Authority::load(None).unwrap();
        let identity = authority.client("me", Some("a")).unwrap();
        let der = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
        assert_eq!(subject(&der), Some(("me".to_owned(), vec!["a".to_owned()])));
        assert_eq!(subject(&der[..20]), None);
        assert_eq!(subject(&[]), None);
    }
}
