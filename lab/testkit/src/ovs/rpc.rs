//! One JSON-RPC call to a daemon's unix socket: what `ovs-appctl` does, without starting a process.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Deserializer, Value, json};

use crate::wait::TIMEOUT;

/// Calls `method` and returns the result; an error that the daemon answers is an error.
pub(crate) fn call(socket: &Path, method: &str, params: &[&str]) -> Result<Value> {
    exchange(socket, method, params).with_context(|| format!("`{method}` at {}", socket.display()))
}

fn exchange(socket: &Path, method: &str, params: &[&str]) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = json!({ "id": 0, "method": method, "params": params });
    stream.write_all(request.to_string().as_bytes())?;
    let mut replies = Deserializer::from_reader(BufReader::new(stream)).into_iter::<Value>();
    let mut reply = replies.next().context("the daemon closed the connection")??;
    match reply["error"].take() {
        Value::Null => Ok(reply["result"].take()),
        Value::String(error) => bail!("{}", error.trim_end()),
        error => bail!("{error}"),
    }
}
