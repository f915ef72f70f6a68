//! Negotiation: which protocol a request is upgraded to.

use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{Response, StatusCode};

use crate::websocket::accept_key;

/// The prefix of subprotocols of SPDY inside a WebSocket.
const TUNNEL: &str = "SPDY/3.1+";
const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// How the streams of a request are transported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Messages of a WebSocket with a channel number.
    Channels,
    /// Streams of SPDY, as older clients use it.
    Spdy,
    /// Streams of SPDY inside a WebSocket.
    Tunnel,
}

/// A protocol that both sides know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// The transport of the streams.
    pub transport: Transport,
    /// The name of the protocol, as the request has it.
    pub protocol: String,
    key: Option<String>,
}

/// A request that cannot be upgraded: the status and the text of the response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unable to upgrade: {reason}")]
pub struct Refusal {
    /// The status of the response.
    pub status: StatusCode,
    /// Why the request is refused.
    pub reason: String,
}

impl Upgrade {
    /// Chooses the first protocol of a request that is one of `known`: pairs of a transport and a protocol, without the
    /// prefix of tunnels.
    pub fn negotiate(headers: &HeaderMap, known: &[(Transport, &str)]) -> Result<Self, Refusal> {
        let refuse = |status, reason| Refusal { status, reason };
        let bad = |reason: &str| refuse(StatusCode::BAD_REQUEST, reason.to_owned());
        let has = |name: &HeaderName, wanted: &str| words(headers, name).any(|word| word.eq_ignore_ascii_case(wanted));
        if !has(&CONNECTION, "upgrade") {
            return Err(bad("the request has no header `Connection: Upgrade`"));
        }
        let offered: Vec<(Transport, String)> = if has(&UPGRADE, "websocket") {
            words(headers, &SEC_WEBSOCKET_PROTOCOL)
                .map(|word| match word.strip_prefix(TUNNEL) {
                    Some(inside) => (Transport::Tunnel, inside.to_owned()),
                    None => (Transport::Channels, word.to_owned()),
                })
                .collect()
        } else if has(&UPGRADE, SPDY) {
            words(headers, &STREAM_PROTOCOL).map(|word| (Transport::Spdy, word.to_owned())).collect()
        } else {
            return Err(bad("the header `Upgrade` has to be `websocket` or `SPDY/3.1`"));
        };
        let fits = |(transport, protocol): &&(Transport, String)| known.contains(&(*transport, protocol.as_str()));
        let Some((transport, protocol)) = offered.iter().find(fits) else {
            let offered: Vec<_> = offered.iter().map(|(_, protocol)| protocol.as_str()).collect();
            let known: Vec<_> = known.iter().map(|(_, protocol)| *protocol).collect();
            let reason = format!("the client supports {offered:?}, the server supports {known:?}");
            return Err(refuse(StatusCode::FORBIDDEN, reason));
        };
        let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).map(ToOwned::to_owned);
        if *transport != Transport::Spdy && key.is_none() {
            return Err(bad("the request has no header `Sec-WebSocket-Key`"));
        }
        Ok(Self { transport: *transport, protocol: protocol.clone(), key })
    }

    /// The response that confirms the upgrade.
    pub fn response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let (upgrade, name, protocol) = match self.transport {
            Transport::Channels => ("websocket", SEC_WEBSOCKET_PROTOCOL, self.protocol.clone()),
            Transport::Tunnel => ("websocket", SEC_WEBSOCKET_PROTOCOL, format!("{TUNNEL}{}", self.protocol)),
            Transport::Spdy => (SPDY, STREAM_PROTOCOL, self.protocol.clone()),
        };
        let accept = self.key.as_deref().map(accept_key);
        let accept = accept.map(|accept| (http::header::SEC_WEBSOCKET_ACCEPT, accept));
        let all = [(CONNECTION, "Upgrade".to_owned()), (UPGRADE, upgrade.to_owned()), (name, protocol)];
        for (name, value) in all.into_iter().chain(accept) {
            // The protocol came in a header, so it can be sent in one.
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[(Transport, &str)] = &[
        (Transport::Channels, "v5.channel.k8s.io"),
        (Transport::Tunnel, "portforward.k8s.io"),
        (Transport::Spdy, "v4.channel.k8s.io"),
    ];

    fn negotiate(headers: &[(&'static str, &'static str)]) -> Result<Upgrade, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Upgrade::negotiate(&map, KNOWN)
    }

    #[test]
    fn the_first_known_protocol_is_chosen() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let socket = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket"), key];
        let with = |protocols| negotiate(&[socket.as_slice(), &[("sec-websocket-protocol", protocols)]].concat());
        let upgrade = with("v9.channel.k8s.io, v5.channel.k8s.io").unwrap();
        assert_eq!((upgrade.transport, upgrade.protocol.as_str()), (Transport::Channels, "v5.channel.k8s.io"));
        let response = upgrade.response::<()>();
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let response = with("SPDY/3.1+portforward.k8s.io").unwrap().response::<()>();
        assert_eq!(response.headers()["sec-websocket-protocol"], "SPDY/3.1+portforward.k8s.io");
        assert_eq!(with("portforward.k8s.io").unwrap_err().status, StatusCode::FORBIDDEN);
        let spdy =
            [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
        let response = negotiate(&spdy).unwrap().response::<()>();
        assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    }

    #[test]
    fn a_request_without_an_upgrade_is_refused_with_the_reason() {
        for (headers, said) in [
            (&[][..], "Connection: Upgrade"),
            (&[("connection", "upgrade"), ("upgrade", "h2c")], "SPDY/3.1"),
            (
                &[("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", "v5.channel.k8s.io")],
                "Sec-WebSocket-Key",
            ),
        ] {
            let refusal = negotiate(headers).unwrap_err();
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
            assert!(refusal.to_string().contains(said), "{refusal}");
        }
    }
}
