//! Tokens of ServiceAccounts: JWTs (RFC 7519) with ES256.

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
use crate::failure::{Failure, FieldError, Of};
use crate::moment;
use crate::value::{at, default_to, items, set, text};

/// The default audience of tokens.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

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
    /// Reads the key from a directory, or creates one and writes it there.
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

    /// The public key as a JWK set (RFC 7517), for clients that verify tokens themselves.
    pub(crate) fn keys(&self) -> Value {
        // An uncompressed point: a marker byte and the two coordinates.
        let point = self.key.public_key().as_ref();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        let key = json!({"use": "sig", "kty": "EC", "kid": self.id(), "crv": "P-256", "alg": "ES256", "x": part(1), "y": part(33)});
        json!({"keys": [key]})
    }

    fn id(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.key.public_key().as_ref());
        URL_SAFE_NO_PAD.encode(digest.as_ref())
    }

    fn sign(&self, claims: &Value) -> Result<String, Failure> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let head = json!({"alg": "ES256", "kid": self.id()}).to_string();
        let text = format!("{}.{}", encode(head.as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| Failure::internal("a token could not be signed"))?;
        Ok(format!("{text}.{}", encode(signature.as_ref())))
    }

    /// The claims of a token that this server signed.
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
    /// Answers a TokenRequest for a ServiceAccount.
    pub(crate) fn token_request(&self, account: &Value, mut request: Value) -> Result<Value, Failure> {
        let seconds = at(&request, "spec.expirationSeconds");
        if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
            let why = "may not specify a duration less than 10 minutes";
            let errors = [FieldError::invalid("spec.expirationSeconds", seconds, why)];
            return Err(Failure::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
        }
        let (token, until) = self.token(account, &request)?;
        let metadata = json!({
            "name": at(account, "metadata.name"), "namespace": at(account, "metadata.namespace"), "uid": at(account, "metadata.uid"),
            "creationTimestamp": moment::now(),
        });
        set(&mut request, "kind", "TokenRequest");
        set(&mut request, "apiVersion", "authentication.k8s.io/v1");
        set(&mut request, "metadata", metadata);
        if items(&request, "spec.audiences").is_empty() {
            set(&mut request, "spec.audiences", json!([AUDIENCE]));
        }
        default_to(&mut request, "spec.expirationSeconds", 3600);
        default_to(&mut request, "spec.boundObjectRef", Value::Null);
        set(&mut request, "status", json!({"token": token, "expirationTimestamp": until}));
        Ok(request)
    }

    /// A token for a ServiceAccount, by the spec of a TokenRequest, and its expiration.
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
        if let Some((claim, holder)) = self.holder(namespace, bound)?
            && let Some(claims) = claims.get_mut("kubernetes.io")
        {
            // Clients that see a Pod's token may need the Pod's Node.
            if let Some(node) = holder.get("node").cloned() {
                set(claims, "node", node);
            }
            set(claims, claim, json!({"name": at(&holder, "name"), "uid": at(&holder, "uid")}));
        }
        Ok((self.signer.sign(&claims)?, moment::rfc3339(now + seconds)))
    }

    /// The object that a token is bound to.
    fn holder(&self, namespace: &str, bound: &Value) -> Result<Option<(&'static str, Value)>, Failure> {
        let (kind, name, uid) = (text(bound, "kind"), text(bound, "name"), text(bound, "uid"));
        let (claim, plural, namespace) = match kind {
            "Pod" => ("pod", "pods", namespace),
            "Secret" => ("secret", "secrets", namespace),
            "Node" => ("node", "nodes", ""),
            "" => return Ok(None),
            other => {
                let why = format!("cannot bind token to object of type {}, Kind={other}", text(bound, "apiVersion"));
                return Err(Failure::bad_request(why));
            }
        };
        let found = self.get(&*self.builtin("", plural)?, namespace, name)?.value();
        if !uid.is_empty() && uid != text(&found, "metadata.uid") {
            let why = "the UID in the bound object reference";
            let why = format!(
                "{why} ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Failure::conflict(Of { group: "", resource: plural }, name, &why));
        }
        let mut holder = json!({"name": name, "uid": at(&found, "metadata.uid")});
        if claim == "pod"
            && let Some(node) = self.find("", "nodes", "", text(&found, "spec.nodeName"))
        {
            set(&mut holder, "node", json!({"name": at(&node, "metadata.name"), "uid": at(&node, "metadata.uid")}));
        }
        Ok(Some((claim, holder)))
    }

    /// The user of a token and its audiences, if the token is valid and the object that it is bound to exists; or the
    /// error.
    pub(crate) fn authenticate_token(&self, token: &str, audiences: &[&str]) -> Result<(User, Vec<String>), String> {
        let bad = || "invalid bearer token".to_owned();
        let claims = self.signer.verify(token).ok_or_else(bad)?;
        let now = moment::since_epoch().as_secs();
        if at(&claims, "exp").as_u64().is_none_or(|end| end <= now) {
            return Err(bad());
        }
        let good: Vec<_> = items(&claims, "aud").iter().filter_map(Value::as_str).collect();
        let wanted = if audiences.is_empty() { &[AUDIENCE][..] } else { audiences };
        let both: Vec<_> =
            good.iter().filter(|audience| wanted.contains(audience)).map(|&one| one.to_owned()).collect();
        if both.is_empty() {
            let quoted = |all: &[&str]| all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" ");
            let (good, wanted) = (quoted(&good), quoted(wanted));
            return Err(format!(
                "[{}, token audiences [{good}] is invalid for the target audiences [{wanted}]]",
                bad()
            ));
        }
        self.bound_to(&claims).map(|user| (user, both)).ok_or_else(bad)
    }

    /// The user of a token, if its ServiceAccount and the bound object exist.
    fn bound_to(&self, claims: &Value) -> Option<User> {
        let bound = claims.get("kubernetes.io")?;
        let (namespace, name) = (text(bound, "namespace"), text(bound, "serviceaccount.name"));
        let account = self.find("", "serviceaccounts", namespace, name)?;
        let uid = text(bound, "serviceaccount.uid");
        if text(&account, "metadata.uid") != uid {
            return None;
        }
        for (claim, plural, namespace) in
            [("pod", "pods", namespace), ("secret", "secrets", namespace), ("node", "nodes", "")]
        {
            // A Pod's token expires with the Pod; its Node is only informative.
            if let Some(holder) = bound.get(claim).filter(|_| claim != "node" || bound.get("pod").is_none()) {
                let stored = self.find("", plural, namespace, text(holder, "name"))?;
                if text(&stored, "metadata.uid") != text(holder, "uid") {
                    return None;
                }
            }
        }
        let mut extra = json!({"authentication.kubernetes.io/credential-id": [format!("JTI={}", text(claims, "jti"))]});
        for kind in ["node", "pod"] {
            if let Some(holder) = bound.get(kind) {
                let extra = crate::value::object(&mut extra);
                extra.insert(format!("authentication.kubernetes.io/{kind}-name"), json!([at(holder, "name")]));
                extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), json!([at(holder, "uid")]));
            }
        }
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let name = format!("system:serviceaccount:{namespace}:{name}");
        Some(User { name, uid: uid.to_owned(), groups: groups.to_vec(), extra })
    }
}
