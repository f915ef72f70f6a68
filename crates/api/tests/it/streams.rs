//! The stream between a controller and agents, on real sockets with real TLS.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::control::client::{self, Credentials, Error, Following};
use api::control::server::{Controller, Feed, Listener, Refusal, Rest, Timeouts, prepare};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use types::ObjectName;
use types::control::{Batch, Change, Group, GroupChange, GroupId, Member, Report};

const NAME: &str = "antrea.kube-system.svc";
const TIMEOUT: Duration = Duration::from_secs(20);

/// Tokens are the names of Nodes; batches come from the test.
#[derive(Default)]
struct Fake {
    feeds: Mutex<Vec<(String, mpsc::Sender<Batch>)>>,
    changed: Notify,
    reports: Mutex<Vec<(String, Report)>>,
}

struct FakeFeed(mpsc::Receiver<Batch>);

impl Feed for FakeFeed {
    async fn next(&mut self) -> Option<Batch> {
        self.0.recv().await
    }
}

impl Controller for Fake {
    type Feed = FakeFeed;

    async fn admit(&self, token: &str, node: &str) -> Result<FakeFeed, Refusal> {
        match token {
            "invalid" => return Err(Refusal::Token("the token is invalid".to_owned())),
            token if token != node => {
                return Err(Refusal::Forbidden(format!("the token is of {token}, not of {node}")));
            }
            _ => {}
        }
        let (sender, receiver) = mpsc::channel(1);
        self.feeds.lock().unwrap().push((node.to_owned(), sender));
        self.changed.notify_waiters();
        Ok(FakeFeed(receiver))
    }

    async fn report(&self, node: &str, reports: Vec<Report>) {
        self.reports.lock().unwrap().extend(reports.into_iter().map(|report| (node.to_owned(), report)));
        self.changed.notify_waiters();
    }
}

impl Fake {
    /// Waits for a condition.
    async fn wait<T>(&self, what: &str, is_so: impl Fn(&Self) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = is_so(self) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{what} takes too long"))
    }

    async fn feed(&self, node: &str) -> mpsc::Sender<Batch> {
        let find = |fake: &Self| {
            let mut feeds = fake.feeds.lock().unwrap();
            let place = feeds.iter().position(|(of, _)| of == node)?;
            Some(feeds.remove(place).1)
        };
        self.wait("an agent's stream", find).await
    }
}

struct Hello;

impl Rest for Hello {
    async fn answer(&self, request: Request<Incoming>, _: &[CertificateDer<'static>]) -> Response<Full<Bytes>> {
        Response::new(Full::from(request.uri().path().to_owned()))
    }
}

struct Server {
    fake: Arc<Fake>,
    address: SocketAddr,
    ca: CertifiedIssuer<'static, KeyPair>,
    stop: oneshot::Sender<()>,
}

impl Server {
    async fn start(timeouts: Timeouts) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![NAME.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![leaf.der().clone()], key.into()).unwrap();
        prepare(&mut config);
        let (_, tls) = watch::channel(Arc::new(config));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address().unwrap();
        let fake = Arc::new(Fake::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let controller = Arc::clone(&fake);
        tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            listener.serve(tls, controller, Arc::new(Hello), timeouts, stopped).await;
        });
        Self { fake, address, ca, stop }
    }

    fn credentials(&self, token: &str) -> Credentials {
        Credentials { ca_bundle: self.ca.pem(), token: token.to_owned(), server_name: NAME.to_owned() }
    }

    fn connector(&self, protocol: &str) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        TlsConnector::from(Arc::new(config))
    }

    async fn follow(&self, node: &str) -> Following {
        client::follow(self.address, &self.credentials(node), node).await.unwrap()
    }
}

fn batch(members: usize) -> Batch {
    let member = |n: usize| {
        let pod = ObjectName { namespace: "default".to_owned(), name: format!("pod-{n}") };
        Arc::new(Member { pod, addresses: vec![[10, 1, 2, 3].into()], ports: vec![] })
    };
    let group = Group { id: GroupId([7; 16]), members: (0..members).map(member).collect() };
    Batch { snapshot: true, changes: vec![Change::Address(GroupChange::Set(Arc::new(group)))] }
}

fn members(batch: &Batch) -> usize {
    let members = |change: &Change| match change {
        Change::Address(GroupChange::Set(group)) => group.members.len(),
        Change::Address(GroupChange::Patch(patch)) => patch.added.len(),
        _ => 0,
    };
    batch.changes.iter().map(members).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_come_whole_and_in_order_and_reports_go_back() {
    let server = Server::start(Timeouts::default()).await;
    let mut following = server.follow("n1").await;
    let feed = server.fake.feed("n1").await;
    for members in [1, 20_000, 0] {
        feed.send(batch(members)).await.unwrap();
    }
    for expected in [1, 20_000, 0] {
        let batch = following.next().await.unwrap();
        assert_eq!((batch.snapshot, members(&batch)), (true, expected));
    }
    let report = |generation| Report { generation, problem: Some("no switch".to_owned()), ..Report::default() };
    following.reporter().report((0..2000).map(report).collect()).await.unwrap();
    let all = |fake: &Fake| (fake.reports.lock().unwrap().len() == 2000).then_some(());
    server.fake.wait("the reports", all).await;
    let reports = server.fake.reports.lock().unwrap();
    assert!(reports.iter().enumerate().all(|(n, (node, it))| node == "n1" && it.generation == n as i64));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_valid_credentials_is_refused_with_the_reason() {
    let server = Server::start(Timeouts { hello: Duration::from_millis(200), ..Timeouts::default() }).await;
    let follow = |credentials: Credentials| async move { client::follow(server.address, &credentials, "n1").await };
    for (token, expected) in [("invalid", "the token is invalid"), ("n2", "the token is of n2, not of n1")] {
        let error = follow(server.credentials(token)).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains(expected), "{error}");
    }
    // Another CA, another name, and unusable credentials.
    let other = Server::start(Timeouts::default()).await.credentials("n1");
    let error = follow(other).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let error =
        follow(Credentials { server_name: "example.com".to_owned(), ..server.credentials("n1") }).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    for broken in [
        Credentials { ca_bundle: String::new(), ..server.credentials("n1") },
        Credentials { token: "a\nb".to_owned(), ..server.credentials("n1") },
        Credentials { server_name: "..".to_owned(), ..server.credentials("n1") },
    ] {
        let error = follow(broken).await.unwrap_err();
        assert!(matches!(error, Error::Credentials { .. }), "{error}");
    }
    assert!(server.fake.feeds.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_protocol_does_not_disturb_agents() {
    let server = Server::start(Timeouts::default()).await;
    let mut following = server.follow("n1").await;
    let feed = server.fake.feed("n1").await;
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 70_000], b"\x16\x03\x01\xff\xff\x01"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(nonsense).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        // At most an alert of TLS.
        assert!(answer.len() < 16, "{answer:?}");
    }
    feed.send(batch(3)).await.unwrap();
    assert_eq!(members(&following.next().await.unwrap()), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_reads_nothing_is_disconnected_and_delays_no_other() {
    let server = Server::start(Timeouts { slow: Duration::from_millis(300), ..Timeouts::default() }).await;
    let (mut slow, mut quick) = (server.follow("slow").await, server.follow("quick").await);
    let (to_slow, to_quick) = (server.fake.feed("slow").await, server.fake.feed("quick").await);
    to_slow.send(batch(40_000)).await.unwrap();
    to_quick.send(batch(20_000)).await.unwrap();
    assert_eq!(members(&quick.next().await.unwrap()), 20_000);
    // Its feed is dropped, although its connection is still open.
    tokio::time::timeout(TIMEOUT, to_slow.closed()).await.unwrap();
    let error = slow.next().await.unwrap_err();
    assert!(matches!(error, Error::StreamEnded { .. }), "{error}");
    to_quick.send(batch(5)).await.unwrap();
    assert_eq!(members(&quick.next().await.unwrap()), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_notices_when_the_other_disconnects() {
    let server = Server::start(Timeouts::default()).await;
    let following = server.follow("n1").await;
    let feed = server.fake.feed("n1").await;
    drop(following);
    tokio::time::timeout(TIMEOUT, feed.closed()).await.unwrap();
    let mut following = server.follow("n1").await;
    let reporter = following.reporter();
    let (address, credentials) = (server.address, server.credentials("n1"));
    server.stop.send(()).unwrap();
    let error = tokio::time::timeout(TIMEOUT, following.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::StreamEnded { .. }), "{error}");
    drop(following);
    let lost = async { while reporter.report(vec![Report::default()]).await.is_ok() {} };
    tokio::time::timeout(TIMEOUT, lost).await.unwrap();
    let error = client::follow(address, &credentials, "n1").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains(&address.to_string()), "{error}");
}

/// A proxy to the server that can stop forwarding without closing connections.
async fn silent_path(to: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(to).await.unwrap();
        let mut is_cut = is_cut;
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = is_cut.wait_for(|cut| *cut) => {}
        }
        // The sockets stay open, and nothing is forwarded.
        let _kept = (near, far);
        std::future::pending::<()>().await;
    });
    (address, cut)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_controller_is_detected_within_seconds() {
    let server = Server::start(Timeouts::default()).await;
    let (path, cut) = silent_path(server.address).await;
    let mut following = client::follow(path, &server.credentials("n1"), "n1").await.unwrap();
    cut.send(true).unwrap();
    let error = tokio::time::timeout(Duration::from_secs(15), following.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::StreamEnded { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_request_is_closed_and_a_stream_is_not() {
    let server = Server::start(Timeouts { handshake: Duration::from_secs(1), ..Timeouts::default() }).await;
    let mut following = server.follow("n1").await;
    let feed = server.fake.feed("n1").await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut quiet = server.connector("h2").connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
    let ended = tokio::time::timeout(TIMEOUT, quiet.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "a connection without a request stays");
    feed.send(batch(3)).await.unwrap();
    assert_eq!(members(&following.next().await.unwrap()), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_are_limited_per_address() {
    let server = Server::start(Timeouts { handshake: Duration::from_secs(120), ..Timeouts::default() }).await;
    let following = server.follow("n1").await;
    let mut waiting = Vec::new();
    for _ in 0..63 {
        waiting.push(TcpStream::connect(server.address).await.unwrap());
    }
    let credentials = server.credentials("n2");
    client::get(server.address, &credentials, "/livez").await.unwrap();
    // The server may notice later than the client that a connection has ended.
    let refused = async {
        loop {
            waiting.push(TcpStream::connect(server.address).await.unwrap());
            if let Err(error) = client::get(server.address, &credentials, "/livez").await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(TIMEOUT, refused).await.unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    drop(waiting);
    let again = async { while client::get(server.address, &credentials, "/livez").await.is_err() {} };
    tokio::time::timeout(TIMEOUT, again).await.unwrap();
    drop(following);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_problem_in_a_report_is_truncated() {
    let server = Server::start(Timeouts::default()).await;
    let following = server.follow("n1").await;
    let problem = Some("\u{e4}".repeat(5000));
    following.reporter().report(vec![Report { problem, ..Report::default() }]).await.unwrap();
    let problem = |fake: &Fake| fake.reports.lock().unwrap().first().map(|(_, report)| report.problem.clone());
    assert_eq!(server.fake.wait("the report", problem).await, Some("\u{e4}".repeat(1000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_to_authenticate_again_after_a_while() {
    let admitted = Duration::from_millis(300);
    let server = Server::start(Timeouts { admitted, ..Timeouts::default() }).await;
    let started = Instant::now();
    let mut following = server.follow("n1").await;
    let feed = server.fake.feed("n1").await;
    let error = tokio::time::timeout(TIMEOUT, following.next()).await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::StreamEnded { .. }) && error.to_string().contains("has to authenticate again"),
        "{error}"
    );
    assert!(started.elapsed() >= admitted && feed.is_closed());
    server.follow("n1").await;
    server.fake.feed("n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_an_open_stream_is_not_idle() {
    let (handshake, idle) = (Duration::from_secs(1), Duration::from_secs(2));
    let server = Server::start(Timeouts { handshake, idle, ..Timeouts::default() }).await;
    let mut following = server.follow("n1").await;
    let feed = server.fake.feed("n1").await;
    for protocol in ["h2", "http/1.1"] {
        let name = ServerName::try_from(NAME).unwrap();
        let stream = TcpStream::connect(server.address).await.unwrap();
        let stream = TokioIo::new(server.connector(protocol).connect(name, stream).await.unwrap());
        let (ended, end) = oneshot::channel();
        let ask = || Request::get("/twice").header("host", NAME).body(Full::<Bytes>::default()).unwrap();
        let started = Instant::now();
        // Asked twice, with a pause that is longer than the first request may take and shorter than the connection may be idle.
        let pause = handshake + handshake / 2;
        if protocol == "h2" {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(async move { drop(ended.send(connection.await)) });
            assert!(sender.send_request(ask()).await.unwrap().status().is_success());
            tokio::time::sleep_until((Instant::now() + pause).into()).await;
            assert!(sender.send_request(ask()).await.unwrap().status().is_success());
            tokio::time::timeout(TIMEOUT, end).await.expect("it stays").unwrap().unwrap();
            assert!(started.elapsed() >= pause + idle);
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(async move { drop(ended.send(connection.await)) });
            assert!(sender.send_request(ask()).await.unwrap().status().is_success());
            let _ = tokio::time::timeout(TIMEOUT, end).await.expect("it stays").unwrap();
        }
    }
    feed.send(batch(3)).await.unwrap();
    assert_eq!(members(&following.next().await.unwrap()), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_grpc_messages_are_refused_with_the_reason() {
    let server = Server::start(Timeouts { hello: Duration::from_millis(200), ..Timeouts::default() }).await;
    let name = ServerName::try_from(NAME).unwrap();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let stream = TokioIo::new(server.connector("h2").connect(name, stream).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    for (sent, code, why) in [
        (&b"\x01\0\0\0\0"[..], 12, "compressed"),
        (b"\0\xff\xff\xff\xff", 8, "larger than"),
        (b"\0\0\0\x10\x01", 8, "larger than 4096 bytes"),
        (b"\0\0\0\0\x09\x0a", 3, "truncated"),
        (b"\0\0\0", 3, "truncated"),
        (b"\0\0\0\0\x02\xff\xff", 3, "decode"),
        (b"\0\0\0\0\0", 3, "the first message"),
        (b"", 3, "the first message"),
    ] {
        let request = Request::post(format!("https://{NAME}/antrea.control.v1.Control/Follow"))
            .header("authorization", "Bearer n1")
            .body(Full::new(Bytes::from_static(sent)));
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        let header = |name: &str| answer.headers()[name].to_str().unwrap().replace("%20", " ");
        assert_eq!(header("grpc-status"), code.to_string(), "{sent:?}: {:?}", answer.headers());
        assert!(header("grpc-message").contains(why), "{sent:?}: {:?}", answer.headers());
    }
    assert!(server.fake.feeds.lock().unwrap().is_empty());
}
