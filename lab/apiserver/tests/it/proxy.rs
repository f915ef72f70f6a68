//! A TCP proxy that can cut connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

/// Forwards connections to a server, and cuts them on demand. It ends with the test.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    open: Arc<Mutex<Vec<AbortHandle>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::<AbortHandle>::new()));
        let all = open.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let connection = tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    // The first side that closes ends the connection.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
                let mut all = all.lock().unwrap();
                all.retain(|connection| !connection.is_finished());
                all.push(connection.abort_handle());
            }
        });
        Self { address, open, accepting }
    }

    /// Cuts one of the open connections, in the middle of its traffic. Returns whether there was one.
    pub(crate) fn cut(&self, which: usize) -> bool {
        let mut open = self.open.lock().unwrap();
        open.retain(|connection| !connection.is_finished());
        if open.is_empty() {
            return false;
        }
        let which = which % open.len();
        open.swap_remove(which).abort();
        true
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        while self.cut(0) {}
    }
}
