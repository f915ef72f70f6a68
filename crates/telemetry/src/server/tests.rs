use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

struct Sums;

impl Answers for Sums {
    async fn get(&self, path: &str, query: &str) -> Option<Answer> {
        match path {
            "/healthz" => Some(Answer::health(Ok(()))),
            "/readyz" => Some(Answer::health(Err("waiting for the switch".to_owned()))),
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
async fn health_is_open_and_the_rest_needs_the_token() {
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
    let told = ask(address, "GET /echo?a=1", &right).await;
    assert!(told.starts_with("HTTP/1.1 200") && told.ends_with(r#"{"query":"a=1"}"#), "{told}");
    assert!(ask(address, "GET /other", &right).await.starts_with("HTTP/1.1 404"));
    assert!(ask(address, "POST /echo", &right).await.starts_with("HTTP/1.1 405"));
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
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
fn a_level_that_is_none_is_named() {
    let error = crate::log::init("info,ovs=loud", crate::log::Format::Text).unwrap_err().to_string();
    assert_eq!(error, "`info,ovs=loud` is no level of the log: give one such as `info`, or `info,ovs=debug`");
}
