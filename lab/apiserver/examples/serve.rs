//! Serves an embedded Kubernetes API until it is killed: `cargo run -p apiserver --example serve -- KUBECONFIG [PORT
//! [DATA_DIR]]`.

use std::path::Path;

use apiserver::{ApiServer, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().ok_or("missing argument: the path of the kubeconfig to write")?;
    let mut options = Options::default();
    if let Some(port) = arguments.next() {
        options.listen.set_port(port.parse()?);
    }
    options.data_dir = arguments.next().map(Into::into);
    let server = ApiServer::start(options).await?;
    server.write_kubeconfig(Path::new(&kubeconfig))?;
    std::future::pending().await
}
