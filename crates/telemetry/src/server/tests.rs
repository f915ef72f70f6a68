use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

struct Sums;

impl Answers for Sums {
    async fn get(&self, path: &str, query: &str) -> Option<Answer> {
        match path {
            "/healthz" => Some(Answer::health(Ok::<_, String>(()))),
            "/readyz" => Some(Answer::health(Err("waiting for the switch"))),
            "/slow" => std::future::pending().await,
            "/large" => Some(Answer::json("x".repeat(10_000_000))),
            "/echo" => Some(Answer::json(format!("{{\"query\":\"{query}\"}}"))),
            _ => None,
        }
    }
}

async fn ask(address: SocketAddr, line: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn health_needs_no_token_and_other_paths_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("api/token");
    let server = Server::bind(0, &file).await.unwrap();
    let address = server.address().unwrap();
    assert!(address.ip().is_loopback());
    tokio::spawn(server.serve(Sums));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(&file).unwrap();

    assert!(ask(address, "GET /healthz", "").await.starts_with("HTTP/1.1 200"));
    let ready = ask(address, "GET /readyz", "").await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("waiting for the switch\n"), "{ready}");
    for headers in ["", "Authorization: Bearer x\r\n", "Authorization: Basic x\r\n"] {
        assert!(ask(address, "GET /echo", headers).await.starts_with("HTTP/1.1 401"), "{headers}");
    }
    let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(token.len()));
    assert!(ask(address, "GET /echo", &wrong).await.starts_with("HTTP/1.1 401"));
    let right = format!("Authorization: Bearer {token}\r\n");
    let answer = ask(address, "GET /echo?a=1", &right).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"query":"a=1"}"#), "{answer}");
    assert!(ask(address, "GET /other", &right).await.starts_with("HTTP/1.1 404"));
    assert!(ask(address, "POST /echo", &right).await.starts_with("HTTP/1.1 405"));
}

/// A server, and the header with its token.
async fn start(directory: &tempfile::TempDir) -> (SocketAddr, String) {
    let file = directory.path().join("token");
    let server = Server::bind(0, &file).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.serve(Sums));
    (address, format!("Authorization: Bearer {}\r\n", fs::read_to_string(&file).unwrap()))
}

async fn open(address: SocketAddr, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_probe_is_answered_within_a_second_beside_slow_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (address, token) = start(&directory).await;
    let mut others = Vec::new();
    for sent in [
        String::new(),
        "GET /heal".to_owned(),
        "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Half: ".to_owned(),
        format!("GET /large HTTP/1.1\r\nHost: x\r\n{token}\r\n"),
        format!("GET /slow HTTP/1.1\r\nHost: x\r\n{token}\r\n"),
        "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".to_owned(),
    ] {
        for _ in 0..200 {
            others.push(open(address, &sent).await);
        }
        let probe = tokio::time::timeout(Duration::from_secs(1), ask(address, "GET /healthz", ""));
        assert!(probe.await.expect("an answer in time").starts_with("HTTP/1.1 200"), "while others send {sent:?}");
    }
}

#[tokio::test]
async fn requests_above_the_limit_get_status_503() {
    let directory = tempfile::tempdir().unwrap();
    let (address, token) = start(&directory).await;
    let mut slow = Vec::new();
    for _ in 0..REQUESTS {
        slow.push(open(address, &format!("GET /slow HTTP/1.1\r\nHost: x\r\n{token}\r\n")).await);
    }
    // The server may not have read the last of them yet.
    let refused = async {
        while !ask(address, "GET /echo", &token).await.starts_with("HTTP/1.1 503") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), refused).await.unwrap();
    drop(slow);
    let accepted = async {
        while !ask(address, "GET /echo", &token).await.starts_with("HTTP/1.1 200") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), accepted).await.unwrap();
}

#[tokio::test]
async fn a_connection_without_a_request_in_time_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (address, _) = start(&directory).await;
    let mut late = open(address, "GET /healthz HTTP/1.1\r\n").await;
    let mut said = Vec::new();
    let closed = tokio::time::timeout(REQUEST_TIMEOUT * 2, late.read_to_end(&mut said));
    closed.await.expect("the server closes it").unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let first = Server::bind(0, &directory.path().join("one")).await.unwrap();
    let port = first.address().unwrap().port();
    let error = Server::bind(port, &directory.path().join("two")).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot listen on 127.0.0.1:{port}: "))
            && error.ends_with("set apiPort to another port"),
        "{error}"
    );
    assert!(!directory.path().join("two").exists());
}

#[test]
fn an_invalid_log_level_is_reported() {
    let error = crate::log::init("info,ovs=loud", crate::log::Format::Text).unwrap_err().to_string();
    assert_eq!(error, "`info,ovs=loud` is not a log level: use one such as `info`, or `info,ovs=debug`");
}
