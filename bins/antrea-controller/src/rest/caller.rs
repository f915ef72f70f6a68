//! Authentication of requests: user headers of the API server's proxy, or a token.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use k8s::User;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::{Answer, Rest, plain};
use crate::tls::FrontProxy;

impl Rest {
    /// The user of a request; the error is the response.
    pub(super) async fn caller(
        &self,
        request: &Request<Incoming>,
        certificates: &[CertificateDer<'static>],
    ) -> Result<User, Answer> {
        let proxy = self.front_proxy.borrow().clone();
        if let Some(user) = of_proxy(&proxy, request.headers(), certificates) {
            return Ok(user);
        }
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let needed =
            || plain(StatusCode::UNAUTHORIZED, "send a valid token in the header `Authorization: Bearer TOKEN`");
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(needed)?;
        let cannot = |error: k8s::RequestError| plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        self.authenticator.user(token).await.map_err(cannot)?.ok_or_else(needed)
    }
}

/// The user in the headers of the proxy, if the client is the proxy. TLS has verified its certificate.
fn of_proxy(proxy: &FrontProxy, headers: &HeaderMap, certificates: &[CertificateDer<'static>]) -> Option<User> {
    let name = common_name(certificates.first()?)?;
    if !proxy.names.is_empty() && !proxy.names.contains(&name) {
        return None;
    }
    let all = |names: &[String]| -> Vec<String> {
        let values = names.iter().flat_map(|name| headers.get_all(name.as_str()));
        values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let mut user = User {
        name: all(&proxy.user_headers).into_iter().next()?,
        groups: all(&proxy.group_headers),
        ..User::default()
    };
    for (header, value) in headers {
        let lower = |prefix: &String| prefix.to_lowercase();
        let key = proxy.extra_prefixes.iter().find_map(|prefix| header.as_str().strip_prefix(&lower(prefix)));
        if let (Some(key), Ok(value)) = (key, value.to_str()) {
            user.extra.entry(key.replace("%2f", "/").replace("%2F", "/")).or_default().push(value.to_owned());
        }
    }
    Some(user)
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}
