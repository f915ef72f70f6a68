//! The agent's end of the socket.

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

/// Connections that are not accepted yet.
const BACKLOG: u32 = 1024;
/// Connections at a time; a plugin has one for its only call.
const MOST_CONNECTIONS: usize = 1024;
/// How long calls in hand are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait after a failure to accept, which is a lack of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Carries out the calls of container runtimes.
///
/// Calls for one container come one after the other, in the order in which they were made; GC comes alone. A call that waits
/// for its turn is forgotten when its client goes away. A call that was begun runs to its end, whether its client is still
/// there or not: the runtime answers a failed or lost ADD with a DEL. So every function must end by itself, and an ADD that
/// fails must leave nothing behind.
pub trait Handler: Send + Sync + 'static {
    /// Attaches a container. For an attachment that is there already it gives the same answer again.
    fn add(&self, call: &Call) -> impl Future<Output = Result<Attachment, Error>> + Send;

    /// Detaches a container. Succeeds if there is nothing to detach.
    fn del(&self, release: &Release) -> impl Future<Output = Result<(), Error>> + Send;

    /// Fails if an attachment is not as `expected`: what ADD gave, and what other plugins may have added.
    fn check(&self, call: &Call, expected: &Attachment) -> impl Future<Output = Result<(), Error>> + Send;

    /// Fails if an ADD would, with [`Code::NotAvailable`](super::Code) or [`Code::LimitedConnectivity`](super::Code).
    fn status(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Removes whatever belongs to attachments other than those in `valid`.
    fn gc(&self, valid: &[AttachmentId]) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Why the socket could not be made: the path, what failed, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("CNI socket {}: {problem}", path.display())]
pub struct BindError {
    path: PathBuf,
    problem: String,
    #[source]
    source: Option<io::Error>,
}

/// A socket that antrea-cni can connect to. Its file goes away with it, unless another agent has put its own there.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    /// Kept for its end.
    _file: SocketFile,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Listener {
    /// Makes the socket, for root only, in place of one that nobody listens at any more. A missing directory is made.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |what: &'static str| move |source| BindError::of(path, format!("{what}: {source}"), Some(source));
        let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
            let problem = "is not the path of a file; set cniSocket to one such as /var/run/antrea/cni.sock";
            return Err(BindError::of(path, problem, None));
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed("cannot make its directory"))?;
        make_way(path)?;
        let listener = listen(path).map_err(failed("cannot listen there"))?;
        let metadata = fs::symlink_metadata(path).map_err(failed("is gone again"))?;
        let file = SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
        Ok(Self { listener, _file: file })
    }

    /// Answers calls until `shutdown` is ready; then takes no more, and waits some seconds for those that are in hand.
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
                stream = accept(&self.listener), if connections.len() < MOST_CONNECTIONS => {
                    connections.spawn(converse(stream, service.clone(), stopped.clone()));
                }
            }
        }
        drop(self);
        drop(stop);
        let answered = timeout(PATIENCE, async { while connections.join_next().await.is_some() {} }).await;
        let left = lanes.drained(if answered.is_ok() { PATIENCE } else { Duration::ZERO }).await;
        if left > 0 {
            tracing::warn!(calls = left, "CNI calls did not end within {PATIENCE:?}; the runtime will repeat them");
        }
    }
}

async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the CNI socket; trying again");
                let next_try = Instant::now() + PAUSE;
                sleep_until(next_try).await;
            }
        }
    }
}

async fn converse<H: Handler>(
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
    // A plugin that was killed, or somebody who speaks something else.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the CNI socket ended");
    }
}

/// A socket with its mode from the first moment on: the kernel gives the file the mode of the socket.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(0o600))?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

/// Removes a socket that nobody listens at; fails if somebody does, or if what is there is no socket.
fn make_way(path: &Path) -> Result<(), BindError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        let problem = "is there and is not a socket; remove it, or set cniSocket to another path";
        return Err(BindError::of(path, problem, None));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let problem = "another antrea-agent listens there; stop it, or set cniSocket to another path";
        return Err(BindError::of(path, problem, None));
    }
    fs::remove_file(path).map_err(|error| {
        BindError::of(path, format!("cannot remove what another agent has left: {error}"), Some(error))
    })
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
