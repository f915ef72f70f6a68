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
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::User;
use crate::core::Core;
use crate::failure::{Failure, FieldError, Of};
use crate::moment;
use crate::objects::{Metadata, Node, Object, Pod, read};
use crate::value::{default_to, set};

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

    fn sign(&self, claims: &Claims) -> Result<String, Failure> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let head = json!({"alg": "ES256", "kid": self.id()}).to_string();
        let text = format!("{}.{}", encode(head.as_bytes()), encode(json!(claims).to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| Failure::internal("a token could not be signed"))?;
        Ok(format!("{text}.{}", encode(signature.as_ref())))
    }

    /// The claims of a token that this server signed.
    fn verify(&self, token: &str) -> Option<Claims> {
        let (text, signature) = token.rsplit_once('.')?;
        let (_, claims) = text.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(text.as_bytes(), &signature).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

/// The claims of a token, as far as Kubernetes uses them.
#[derive(Deserialize, Serialize)]
struct Claims {
    #[serde(default)]
    aud: Vec<String>,
    iss: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: String,
    sub: String,
    #[serde(rename = "kubernetes.io")]
    bound: Bound,
}

/// The ServiceAccount of a token, and the objects that it is bound to.
#[derive(Deserialize, Serialize)]
struct Bound {
    namespace: String,
    serviceaccount: Holder,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<Holder>,
    /// For the token of a Pod, the Node of the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Holder>,
}

#[derive(Deserialize, Serialize)]
struct Holder {
    name: String,
    uid: String,
}

impl Holder {
    fn of(metadata: &Metadata) -> Self {
        Self { name: metadata.name.clone(), uid: metadata.uid.clone() }
    }

    fn is(&self, metadata: &Metadata) -> bool {
        self.uid == metadata.uid
    }
}

/// The spec of a TokenRequest.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TokenRequestSpec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<BoundObjectReference>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundObjectReference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

/// Validity of a token in seconds, unless the request has another one.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;

impl Core {
    /// Answers a TokenRequest for a ServiceAccount.
    pub(crate) fn token_request(&self, account: &Metadata, mut request: Value) -> Result<Value, Failure> {
        let spec: TokenRequestSpec = request.get("spec").map(read).unwrap_or_default();
        let seconds = spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
        if seconds < MIN_SECONDS {
            let why = "may not specify a duration less than 10 minutes";
            let errors = [FieldError::invalid("spec.expirationSeconds", &json!(seconds), why)];
            return Err(Failure::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
        }
        let (token, until) = self.token(account, &spec)?;
        let metadata = json!({
            "name": account.name, "namespace": account.namespace, "uid": account.uid, "creationTimestamp": moment::now(),
        });
        set(&mut request, "kind", "TokenRequest");
        set(&mut request, "apiVersion", "authentication.k8s.io/v1");
        set(&mut request, "metadata", metadata);
        set(&mut request, "spec.audiences", json!(spec.audiences()));
        set(&mut request, "spec.expirationSeconds", seconds);
        default_to(&mut request, "spec.boundObjectRef", Value::Null);
        set(&mut request, "status", json!({"token": token, "expirationTimestamp": until}));
        Ok(request)
    }

    /// A token for a ServiceAccount, and its expiration.
    pub(crate) fn token(&self, account: &Metadata, spec: &TokenRequestSpec) -> Result<(String, String), Failure> {
        let Metadata { namespace, name, .. } = account;
        let now = moment::since_epoch().as_secs();
        let seconds = u64::try_from(spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS)).unwrap_or_default();
        let mut bound = Bound {
            namespace: namespace.clone(),
            serviceaccount: Holder::of(account),
            pod: None,
            secret: None,
            node: None,
        };
        if let Some(reference) = &spec.bound_object_ref {
            self.bind(&mut bound, reference)?;
        }
        let claims = Claims {
            aud: spec.audiences(),
            iss: AUDIENCE.to_owned(),
            iat: now,
            nbf: now,
            exp: now + seconds,
            jti: moment::uid(),
            sub: format!("system:serviceaccount:{namespace}:{name}"),
            bound,
        };
        Ok((self.signer.sign(&claims)?, moment::rfc3339(now + seconds)))
    }

    /// Binds a token to an object.
    fn bind(&self, bound: &mut Bound, reference: &BoundObjectReference) -> Result<(), Failure> {
        let BoundObjectReference { api_version, kind, name, uid } = reference;
        let (plural, namespace) = match kind.as_str() {
            "Pod" => ("pods", bound.namespace.as_str()),
            "Secret" => ("secrets", bound.namespace.as_str()),
            "Node" => ("nodes", ""),
            "" => return Ok(()),
            other => {
                let why = format!("cannot bind token to object of type {api_version}, Kind={other}");
                return Err(Failure::bad_request(why));
            }
        };
        let stored = self.get(&*self.builtin("", plural)?, namespace, name)?;
        let Object { metadata } = stored.read().unwrap_or_default();
        if !uid.is_empty() && *uid != metadata.uid {
            let why = "the UID in the bound object reference";
            let why = format!(
                "{why} ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Failure::conflict(Of { group: "", resource: plural }, name, &why));
        }
        let holder = Some(Holder::of(&metadata));
        match kind.as_str() {
            "Pod" => {
                let Pod { spec, .. } = stored.read().unwrap_or_default();
                // Clients that see a Pod's token may need the Pod's Node.
                bound.node = self.read::<Node>("", &spec.node_name).map(|node| Holder::of(&node.metadata));
                bound.pod = holder;
            }
            "Secret" => bound.secret = holder,
            _ => bound.node = holder,
        }
        Ok(())
    }

    /// The user of a token and its audiences, if the token is valid and the object that it is bound to exists; or the
    /// error.
    pub(crate) fn authenticate_token(&self, token: &str, audiences: &[&str]) -> Result<(User, Vec<String>), String> {
        let bad = || "invalid bearer token".to_owned();
        let claims = self.signer.verify(token).ok_or_else(bad)?;
        if claims.exp <= moment::since_epoch().as_secs() {
            return Err(bad());
        }
        let wanted = if audiences.is_empty() { &[AUDIENCE][..] } else { audiences };
        let both: Vec<_> = claims.aud.iter().filter(|audience| wanted.contains(&audience.as_str())).cloned().collect();
        if both.is_empty() {
            let quoted = |all: &[&str]| all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" ");
            let good: Vec<_> = claims.aud.iter().map(String::as_str).collect();
            let (good, wanted) = (quoted(&good), quoted(wanted));
            return Err(format!(
                "[{}, token audiences [{good}] is invalid for the target audiences [{wanted}]]",
                bad()
            ));
        }
        self.user_of(&claims).map(|user| (user, both)).ok_or_else(bad)
    }

    /// The user of a token, if its ServiceAccount and the bound object exist.
    fn user_of(&self, claims: &Claims) -> Option<User> {
        let Bound { namespace, serviceaccount: account, pod, secret, node } = &claims.bound;
        let exists = |holder: &Holder, plural: &str, namespace: &str| {
            let stored = self.builtin("", plural).and_then(|resource| self.get(&resource, namespace, &holder.name));
            stored.ok().and_then(|stored| stored.read::<Object>()).is_some_and(|found| holder.is(&found.metadata))
        };
        // A Pod's token expires with the Pod; its Node is only informative.
        let of_node = node.as_ref().filter(|_| pod.is_none());
        let valid = exists(account, "serviceaccounts", namespace)
            && pod.as_ref().is_none_or(|pod| exists(pod, "pods", namespace))
            && secret.as_ref().is_none_or(|secret| exists(secret, "secrets", namespace))
            && of_node.is_none_or(|node| exists(node, "nodes", ""));
        if !valid {
            return None;
        }
        let mut extra = json!({"authentication.kubernetes.io/credential-id": [format!("JTI={}", claims.jti)]});
        for (kind, holder) in [("node", node), ("pod", pod)] {
            if let Some(holder) = holder {
                let extra = crate::value::object(&mut extra);
                extra.insert(format!("authentication.kubernetes.io/{kind}-name"), json!([holder.name]));
                extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), json!([holder.uid]));
            }
        }
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let name = format!("system:serviceaccount:{namespace}:{}", account.name);
        Some(User { name, uid: account.uid.clone(), groups: groups.to_vec(), extra })
    }
}

impl TokenRequestSpec {
    fn audiences(&self) -> Vec<String> {
        let given = self.audiences.clone().filter(|audiences| !audiences.is_empty());
        given.unwrap_or_else(|| vec![AUDIENCE.to_owned()])
    }
}
