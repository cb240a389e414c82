//! Asking a running daemon.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;

/// A daemon that does not answer within this is stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than this no answer has, bytes.
const MOST: u64 = 64 << 20;

/// The answer to a `GET`; an error if there is no daemon, or if it refuses.
pub fn get(socket: &Path, path: &str) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no daemon answers at {}: is it running?", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // By HTTP/1.0 the answer ends where the connection does.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: sqm\r\n\r\n")?;
    let mut answer = String::new();
    stream
        .take(MOST)
        .read_to_string(&mut answer)
        .context("the daemon's answer broke off")?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| anyhow!("the daemon's answer is no HTTP"))?;
    let code = head.split_whitespace().nth(1).unwrap_or_default();
    if code != "200" {
        return Err(anyhow!("the daemon refuses {path}: {code}: {body}"));
    }
    serde_json::from_str(body).context("the daemon's answer is no JSON")
}
