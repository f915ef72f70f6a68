//! A small HTTP server: `/` and `/hostname`, `/clientip`, `/echo?msg=`, `/healthz`, and `/dial?host=&port=&request=`, which
//! sends a request to another server.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::accept::or_pause;
use crate::query::parameter;

const MAX_REQUEST: usize = 64 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the request of `/dial`.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves HTTP on IPv4 and IPv6.
pub(crate) async fn serve(port: u16) -> Result<()> {
    let bound = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await;
    let listener = bound.with_context(|| format!("cannot listen at TCP port {port}"))?;
    loop {
        let Ok((stream, from)) = or_pause(listener.accept().await).await else { continue };
        tokio::spawn(async move {
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            // A client that disconnects or sends no request is not an error.
            let _ = timeout(REQUEST_TIMEOUT, answer(stream, from)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, from: SocketAddr) -> Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MAX_REQUEST || stream.read_buf(&mut request).await? == 0 {
            bail!("not an HTTP request");
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let target = text.split_whitespace().nth(1).unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, body) = match path {
        "/" | "/hostname" | "/hostName" => ("200 OK", super::hostname()),
        "/clientip" => ("200 OK", from.to_string()),
        "/healthz" => ("200 OK", "ok".to_owned()),
        "/echo" => ("200 OK", parameter(query, "msg").unwrap_or_default()),
        "/dial" => match dial(query).await {
            Ok(body) => ("200 OK", body),
            Err(error) => ("502 Bad Gateway", format!("{error:#}\n")),
        },
        _ => ("404 Not Found", "try /hostname, /clientip, /echo?msg=, /healthz or /dial?host=&port=&request=\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

async fn dial(query: &str) -> Result<String> {
    let host = parameter(query, "host").context("`host` is missing")?;
    let port = parameter(query, "port").unwrap_or_else(|| "80".to_owned());
    let port: u16 = port.parse().context("`port` must be a number")?;
    let request = parameter(query, "request").unwrap_or_else(|| "hostname".to_owned());
    let target = format!("/{}", request.trim_start_matches('/'));
    timeout(DIAL_TIMEOUT, get(&host, port, &target)).await.with_context(|| format!("{host}:{port} did not answer"))?
}

/// Sends a GET request, and returns the body of the response.
pub(crate) async fn get(host: &str, port: u16, target: &str) -> Result<String> {
    let what = || format!("{host}:{port}");
    let mut stream = TcpStream::connect((host, port)).await.with_context(what)?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.with_context(what)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.with_context(what)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{host}:{port} sent no HTTP response"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        bail!("{host}:{port} answered {status}: {body}");
    }
    Ok(body.to_owned())
}
