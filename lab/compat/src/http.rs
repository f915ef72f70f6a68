//! A server under test, and requests to it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::http::Response;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// Timeout of a request; only a broken server takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for asynchronous work of the server by default.
const DEFAULT_WAIT: Duration = Duration::from_secs(20);

/// Credentials of the administrator.
#[derive(Clone)]
pub enum Credential {
    /// A client certificate and its key, in PEM.
    Certificate {
        /// The client certificate in PEM.
        certificate: String,
        /// The private key in PEM.
        key: String,
    },
    /// A bearer token of the administrator.
    Token(String),
}

/// A Kubernetes API server to send requests to.
pub struct Server {
    url: String,
    anonymous: Agent,
    admin: Agent,
    admin_token: Option<String>,
    compact: Box<dyn Fn() -> Result<()> + Send + Sync>,
    pub(crate) timeout: Duration,
}

pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) user: Option<&'a str>,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: Option<&'a [u8]>,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: String,
}

/// The events of a watch, in the order of arrival.
pub(crate) struct Stream {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    lines: Receiver<String>,
}

impl Server {
    /// A server at `url` with a certificate of `ca` (PEM).
    pub fn new(url: &str, ca: &str, admin: Credential) -> Result<Self> {
        let (certificate, admin_token) = match admin {
            Credential::Certificate { certificate, key } => (Some((certificate, key)), None),
            Credential::Token(token) => (None, Some(token)),
        };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            anonymous: agent(ca, None)?,
            admin: agent(ca, certificate)?,
            admin_token,
            compact: Box::new(|| bail!("this server cannot compact its history")),
            timeout: DEFAULT_WAIT,
        })
    }

    /// How to make the server drop all revisions but the current one.
    #[must_use]
    pub fn compacted_by(mut self, compact: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        self.compact = Box::new(compact);
        self
    }

    pub(crate) fn compact(&self) -> Result<()> {
        (self.compact)()
    }

    pub(crate) fn send(&self, request: &Request<'_>) -> Result<Reply> {
        let mut response = self.exchange(request)?;
        Ok(Reply {
            status: response.status().as_u16(),
            content_type: content_type(&response),
            warnings: warnings(&response),
            body: response.body_mut().read_to_string().context("the body of the answer")?,
        })
    }

    pub(crate) fn watch(&self, request: &Request<'_>) -> Result<Stream> {
        let response = self.exchange(request)?;
        let (status, content_type) = (response.status().as_u16(), content_type(&response));
        let (sender, lines) = channel();
        thread::spawn(move || {
            let body = BufReader::new(response.into_body().into_reader());
            // The receiver may be dropped, and the server may close the connection: both end the stream.
            body.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Stream { status, content_type, lines })
    }

    fn exchange(&self, request: &Request<'_>) -> Result<Response<Body>> {
        let Request { method, path, user, headers, body } = request;
        let (agent, token) = match user {
            None => (&self.admin, self.admin_token.as_deref()),
            Some("anonymous") => (&self.anonymous, None),
            Some(token) => (&self.anonymous, Some(*token)),
        };
        let mut builder = ureq::http::Request::builder().method(*method).uri(format!("{}{path}", self.url));
        builder = builder.header("User-Agent", "compat");
        if let Some(token) = token {
            builder = builder.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let response = match body {
            Some(body) if *method == "DELETE" => {
                let request = builder.body(())?;
                let mut delete = agent.delete(request.uri());
                for (name, value) in request.headers() {
                    delete = delete.header(name, value);
                }
                delete.force_send_body().send(*body)
            }
            Some(body) => agent.run(builder.body(*body)?),
            None => agent.run(builder.body(())?),
        };
        response.with_context(|| format!("{method} {path}"))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.url)
    }
}

impl Stream {
    /// The first `count` events that arrive before the stream ends or `timeout` expires.
    pub(crate) fn take(&self, count: usize, timeout: Duration) -> Vec<Value> {
        let end = Instant::now() + timeout;
        let left = || end.saturating_duration_since(Instant::now());
        let lines = (0..count).map_while(|_| self.lines.recv_timeout(left()).ok());
        lines.map(|line| serde_json::from_str(&line).unwrap_or(Value::String(line))).collect()
    }
}

fn agent(ca: &str, client: Option<(String, String)>) -> Result<Agent> {
    let client = match client {
        Some((certificate, key)) => {
            let certificate = Certificate::from_pem(certificate.as_bytes()).context("the client's certificate")?;
            let key = PrivateKey::from_pem(key.as_bytes()).context("the client's key")?;
            Some(ClientCert::new_with_certs(&[certificate], key))
        }
        None => None,
    };
    let ca = Certificate::from_pem(ca.as_bytes()).context("the CA certificate")?;
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .root_certs(RootCerts::new_with_certs(&[ca]))
        .client_cert(client)
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(TIMEOUT));
    Ok(config.build().into())
}

fn content_type(response: &Response<Body>) -> String {
    let value = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn warnings(response: &Response<Body>) -> Vec<String> {
    let values = response.headers().get_all("warning").into_iter();
    values.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect()
}
