//! The database client against faulty servers: silent, idle, wrong, absent.
//!
//! The clock is paused: it jumps ahead when all tasks are idle, so waiting takes no time.

use std::path::PathBuf;
use std::time::Duration;

use ovs::database::{Config, Database, Status};
use ovsdb::frame::Framer;
use ovsdb::monitor::Update;
use ovsdb::rpc::{Message, Request, Response};
use ovsdb::value::Uuid;
use serde_json::{Value, json};
use testkit::Scratch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// A directory for a server's socket.
struct Place {
    dir: Scratch,
}

impl Place {
    fn new() -> Self {
        Self { dir: Scratch::new().unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }

    fn listen(&self) -> UnixListener {
        UnixListener::bind(self.socket()).unwrap()
    }

    fn client(&self) -> Database {
        Database::connect(Config::new(self.socket()))
    }
}

/// The server's end of a connection.
struct Peer {
    stream: UnixStream,
    framer: Framer,
}

impl Peer {
    async fn accept(listener: &UnixListener) -> Self {
        Self { stream: listener.accept().await.unwrap().0, framer: Framer::default() }
    }

    /// The next request; `None` when the client has disconnected.
    async fn request(&mut self) -> Option<Request> {
        loop {
            if let Some(value) = self.framer.next_value().unwrap() {
                match Message::decode(value).unwrap() {
                    Message::Request(request) => return Some(request),
                    other => panic!("not a request: {other:?}"),
                }
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk).await.unwrap() {
                0 => return None,
                n => self.framer.push(&chunk[..n]),
            }
        }
    }

    async fn send(&mut self, message: impl Into<Message>) {
        self.stream.write_all(&message.into().to_bytes()).await.unwrap();
    }

    /// Answers the monitor request with no rows; returns the transaction that it wanted to resume from.
    async fn start_monitor(&mut self, last: Uuid) -> Value {
        let request = self.request().await.unwrap();
        assert_eq!(request.method, "monitor_cond_since");
        self.send(Response { id: request.id, outcome: Ok(json!([false, last.to_string(), {}])) }).await;
        request.params[3].clone()
    }
}

async fn status(database: &Database, test: impl Fn(&Status) -> bool) -> Status {
    database.status().wait_for(test).await.unwrap().clone()
}

fn waiting(status: &Status) -> bool {
    matches!(status, Status::Waiting { .. })
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_disconnected_and_tried_again() {
    let place = Place::new();
    let listener = place.listen();
    let database = place.client();
    let _first = Peer::accept(&listener).await;
    let Status::Waiting { reason, .. } = status(&database, waiting).await else { panic!("not waiting") };
    assert!(reason.contains("sent nothing for 10s"), "{reason}");
    let _second = Peer::accept(&listener).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_by_probes() {
    let place = Place::new();
    let listener = place.listen();
    let database = place.client();
    let mut peer = Peer::accept(&listener).await;
    peer.start_monitor(Uuid::NIL).await;
    for _ in 0..20 {
        let reply = peer.request().await.expect("the client disconnected").echo_reply().expect("not a probe");
        peer.send(reply).await;
    }
    assert_eq!(*database.status().borrow(), Status::Connected);
}

#[tokio::test(start_paused = true)]
async fn delays_grow_without_a_server_and_start_again_after_a_success() {
    let place = Place::new();
    let database = place.client();
    let delay = |status: Status| match status {
        Status::Waiting { retry_in, .. } => retry_in,
        other => panic!("{other:?}"),
    };
    let long =
        |status: &Status| matches!(status, Status::Waiting { retry_in, .. } if *retry_in > Duration::from_secs(3));
    status(&database, long).await;
    let listener = place.listen();
    let mut peer = Peer::accept(&listener).await;
    peer.start_monitor(Uuid::NIL).await;
    status(&database, |status| *status == Status::Connected).await;
    drop(peer);
    assert!(delay(status(&database, waiting).await) <= Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_resumes_and_a_wrong_update_starts_over() {
    let place = Place::new();
    let listener = place.listen();
    let database = place.client();
    let last = Uuid::from_bits(7);
    let mut peer = Peer::accept(&listener).await;
    assert_eq!(peer.start_monitor(last).await, json!(Uuid::NIL.to_string()));
    status(&database, |status| *status == Status::Connected).await;
    drop(peer);

    let mut peer = Peer::accept(&listener).await;
    assert_eq!(peer.start_monitor(last).await, json!(last.to_string()));
    let unknown_row = json!({"Port": {last.to_string(): {"modify": {"tag": 1}}}});
    let update = Update::decode(&["antrea".into(), last.to_string().into(), unknown_row]).unwrap();
    peer.send(update.encode()).await;

    let mut peer = Peer::accept(&listener).await;
    assert_eq!(peer.start_monitor(last).await, json!(Uuid::NIL.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_closes_the_connection() {
    let place = Place::new();
    let listener = place.listen();
    let database = place.client();
    let mut peer = Peer::accept(&listener).await;
    peer.start_monitor(Uuid::NIL).await;
    status(&database, |status| *status == Status::Connected).await;
    drop(database);
    assert!(peer.request().await.is_none());
}
