//! The agent's side of the socket.

use std::fs::{self, DirBuilder, File, Permissions};
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::lanes::Lanes;
use super::wire::cni_server::CniServer;
use super::{Attachment, AttachmentId, Call, Error, Release};

mod service;

/// Length of the queue of connections that are not accepted yet.
const BACKLOG: u32 = 1024;
/// Limit of concurrent connections; a plugin opens one for its only call.
const MAX_CONNECTIONS: usize = 1024;
/// How long a shutdown waits for running calls.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`, for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Executes the calls of container runtimes.
///
/// Calls for one container run one after the other, in the order in which they were made; a GC runs alone. A waiting
/// call is dropped when its client disconnects. A running call is completed even if its client disconnects: the runtime
/// sends a DEL after a failed or lost ADD. So every function must return on its own, and an ADD that fails must leave
/// nothing behind.
pub trait Handler: Send + Sync + 'static {
    /// Attaches a container. For an existing attachment it returns the same result again.
    fn add(&self, call: &Call) -> impl Future<Output = Result<Attachment, Error>> + Send;

    /// Detaches a container. Succeeds if there is nothing to detach.
    fn del(&self, release: &Release) -> impl Future<Output = Result<(), Error>> + Send;

    /// Fails if an attachment differs from `expected`: the result of ADD, with possible additions of other plugins.
    fn check(&self, call: &Call, expected: &Attachment) -> impl Future<Output = Result<(), Error>> + Send;

    /// Fails if an ADD would fail, with [`Code::NotAvailable`](super::Code) or
    /// [`Code::LimitedConnectivity`](super::Code).
    fn status(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Removes everything that belongs to attachments not in `valid`.
    fn gc(&self, valid: &[AttachmentId]) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The socket could not be created: its path, the problem and a fix.
#[derive(Debug, thiserror::Error)]
#[error("CNI socket {}: {problem}", path.display())]
pub struct BindError {
    path: PathBuf,
    problem: String,
    #[source]
    source: Option<io::Error>,
}

/// The socket for antrea-cni. Its file is removed on drop, unless another agent has replaced it.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    /// Removes the file of the socket on drop.
    _file: SocketFile,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: a file with others belongs to another agent.
    identity: (u64, u64),
}

impl Listener {
    /// Creates the socket, accessible to root only. Replaces a stale socket and creates a missing directory.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |what: &'static str| move |source| BindError::of(path, format!("{what}: {source}"), Some(source));
        let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
            let problem = "is not the path of a file; set cniSocket to one such as /var/run/antrea/cni.sock";
            return Err(BindError::of(path, problem, None));
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("cannot create its directory"))?;
        remove_stale(path)?;
        let listener = listen(path).map_err(failed("cannot listen"))?;
        let metadata = fs::symlink_metadata(path).map_err(failed("was removed"))?;
        let file = SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
        Ok(Self { listener, _file: file })
    }

    /// Serves calls until `shutdown` completes; then accepts no more, and waits up to 10 s for running ones.
    pub async fn serve<H: Handler>(self, handler: H, shutdown: impl Future<Output = ()>) {
        let lanes = Lanes::new();
        let service = CniServer::new(service::Service::new(handler, Arc::clone(&lanes)));
        let (stop, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => {}
                stream = accept(&self.listener), if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(serve_connection(stream, service.clone(), stopped.clone()));
                }
            }
        }
        drop(self);
        drop(stop);
        let answered = timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
        let left = lanes.drained(if answered.is_ok() { DRAIN_TIMEOUT } else { Duration::ZERO }).await;
        if left > 0 {
            tracing::warn!(
                calls = left,
                "CNI calls did not end within {DRAIN_TIMEOUT:?} of shutdown; the runtime will repeat them"
            );
        }
    }
}

async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the CNI socket; retrying");
                let next_try = Instant::now() + ACCEPT_PAUSE;
                sleep_until(next_try).await;
            }
        }
    }
}

async fn serve_connection<H: Handler>(
    stream: UnixStream,
    service: CniServer<service::Service<H>>,
    mut stopped: watch::Receiver<()>,
) {
    let http = http2::Builder::new(TokioExecutor::new());
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A plugin that was killed, or a client of another protocol.
    if let Err(error) = ended {
        tracing::debug!(%error, "connection to the CNI socket ended");
    }
}

/// Binds with the final mode: the kernel gives the file the mode of the socket.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(0o600))?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

/// Removes a stale socket; fails if a process listens at it, or if the file is not a socket.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        let problem = "exists and is not a socket; remove it, or set cniSocket to another path";
        return Err(BindError::of(path, problem, None));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let problem = "another antrea-agent listens there; stop it, or set cniSocket to another path";
        return Err(BindError::of(path, problem, None));
    }
    fs::remove_file(path)
        .map_err(|error| BindError::of(path, format!("cannot remove the stale socket: {error}"), Some(error)))
}

impl BindError {
    fn of(path: &Path, problem: impl Into<String>, source: Option<io::Error>) -> Self {
        Self { path: path.to_owned(), problem: problem.into(), source }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
