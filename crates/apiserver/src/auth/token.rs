//! Tokens of ServiceAccounts: signed JSON (RFC 7519) with ES256.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::User;
use crate::core::Core;
use crate::failure::Failure;
use crate::moment;
use crate::value::{at, items, text};

/// Whom tokens are for when nobody says otherwise.
const AUDIENCE: &str = "https://kubernetes.default.svc";

/// Signs tokens and checks signatures.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    create_private(path)?.write_all(bytes)
}

/// Opens an empty file that only its owner can read.
pub(crate) fn create_private(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

impl Signer {
    /// The key in a directory, or a new one, which is written there.
    pub(crate) fn load(directory: Option<&Path>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let file = directory.map(|directory| directory.join("sa.key"));
        let stored = file.as_ref().filter(|file| file.exists()).map(std::fs::read).transpose()?;
        let bytes = match stored {
            Some(bytes) => bytes,
            None => {
                let bytes = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?
                    .as_ref()
                    .to_vec();
                if let Some(file) = file {
                    write_private(&file, &bytes)?;
                }
                bytes
            }
        };
        Ok(Self { key: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes)? })
    }

    fn sign(&self, claims: &Value) -> Result<String, Failure> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let head = json!({"alg": "ES256", "typ": "JWT"}).to_string();
        let text = format!("{}.{}", encode(head.as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| Failure::internal("a token could not be signed"))?;
        Ok(format!("{text}.{}", encode(signature.as_ref())))
    }

    /// What a token claims, if this server signed it.
    fn verify(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (_, claims) = text.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(text.as_bytes(), &signature).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

impl Core {
    /// A token for an account, as a TokenRequest asks for it: the token, and when it ends.
    pub(crate) fn token(&self, account: &Value, request: &Value) -> Result<(String, String), Failure> {
        let (namespace, name) = (text(account, "metadata.namespace"), text(account, "metadata.name"));
        let now = moment::since_epoch().as_secs();
        let seconds = at(request, "spec.expirationSeconds").as_u64().unwrap_or(3600);
        let audiences = match items(request, "spec.audiences") {
            [] => vec![json!(AUDIENCE)],
            audiences => audiences.to_vec(),
        };
        let mut claims = json!({
            "aud": audiences, "iss": AUDIENCE, "iat": now, "nbf": now, "exp": now + seconds, "jti": moment::uid(),
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": at(account, "metadata.uid")}},
        });
        let bound = at(request, "spec.boundObjectRef");
        if let Some(claims) = claims.get_mut("kubernetes.io").filter(|_| text(bound, "kind") == "Pod") {
            crate::value::set(claims, "pod", json!({"name": at(bound, "name"), "uid": at(bound, "uid")}));
        }
        Ok((self.signer.sign(&claims)?, moment::rfc3339(now + seconds)))
    }

    /// Whom a token is of, and for which audiences, if it is good and its account is still there.
    pub(crate) fn whose(&self, token: &str, audiences: &[&str]) -> Option<(User, Vec<String>)> {
        let claims = self.signer.verify(token)?;
        let now = moment::since_epoch().as_secs();
        if at(&claims, "exp").as_u64()? <= now {
            return None;
        }
        let good: Vec<_> = items(&claims, "aud").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let wanted = if audiences.is_empty() { &[AUDIENCE][..] } else { audiences };
        let both: Vec<_> = good.into_iter().filter(|audience| wanted.contains(&audience.as_str())).collect();
        if both.is_empty() {
            return None;
        }
        let bound = claims.get("kubernetes.io")?;
        let (namespace, name) = (text(bound, "namespace"), text(bound, "serviceaccount.name"));
        let account = self.find("", "serviceaccounts", namespace, name)?;
        let uid = text(bound, "serviceaccount.uid");
        if text(&account, "metadata.uid") != uid {
            return None;
        }
        let mut extra =
            json!({"authentication.kubernetes.io/credential-id": [format!("JTI={}", text(&claims, "jti"))]});
        if let Some(pod) = bound.get("pod") {
            let stored = self.find("", "pods", namespace, text(pod, "name"))?;
            if text(&stored, "metadata.uid") != text(pod, "uid") {
                return None;
            }
            let extra = crate::value::object(&mut extra);
            extra.insert("authentication.kubernetes.io/pod-name".into(), json!([at(pod, "name")]));
            extra.insert("authentication.kubernetes.io/pod-uid".into(), json!([at(pod, "uid")]));
        }
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let name = format!("system:serviceaccount:{namespace}:{name}");
        Some((User { name, uid: uid.to_owned(), groups: groups.to_vec(), extra }, both))
    }
}
