//! A client of the daemon's API.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;

/// The time a daemon has to answer; a choice. One that takes longer is stuck.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response that is read, bytes; a choice, far above any real one.
const MAX_RESPONSE: u64 = 64 << 20;

/// Sends a `GET` to the daemon and returns the response's JSON.
///
/// # Errors
///
/// If no daemon answers, or if its response is not 200 with JSON.
pub fn get(socket: &Path, path: &str) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no daemon answers at {}: is it running?", socket.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // In HTTP/1.0 the server closes the connection after its response.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: sqm\r\n\r\n")?;
    let mut response = String::new();
    stream
        .take(MAX_RESPONSE)
        .read_to_string(&mut response)
        .context("the daemon's response ended too early")?;
    let (head, body) = response
        .split_once("\r\n\r\n")
        .ok_or_else(|| anyhow!("the daemon's response is not HTTP"))?;
    let code = head.split_whitespace().nth(1).unwrap_or_default();
    if code != "200" {
        return Err(anyhow!("the daemon refused {path}: {code}: {body}"));
    }
    serde_json::from_str(body).context("the daemon's response is not JSON")
}
