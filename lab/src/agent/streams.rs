//! The guest's side of [`crate::forward`]: connections to its virtual hosts, by the numbers that the host gave them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Outcome;
use crate::forward::{CHUNK, END, RETRY};
use crate::protocol::{bytes_of, text_of};

static STREAMS: LazyLock<Mutex<HashMap<u64, Arc<TcpStream>>>> = LazyLock::new(Mutex::default);

/// Longest wait for data in one request. It is shorter than the host's timeout for an answer.
const WAIT: Duration = Duration::from_secs(30);

/// Connects to a port of the virtual host's loopback. Afterwards the calling thread is in the namespace of that host, and
/// must end.
pub(super) fn connect(host: &str, port: u16, stream: u64) -> Outcome {
    let namespace = File::open(format!("/run/netns/{host}"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection.set_read_timeout(Some(WAIT))?;
    connection.set_nodelay(true)?;
    streams().insert(stream, Arc::new(connection));
    done(0)
}

/// Writes to a connection. An empty text ends this direction.
pub(super) fn send(stream: u64, text: &str) -> Outcome {
    let connection = known(stream)?;
    let bytes = bytes_of(text)?;
    if bytes.is_empty() {
        connection.shutdown(Shutdown::Write)?;
    } else {
        (&*connection).write_all(&bytes)?;
    }
    done(0)
}

/// Waits for data on a connection and returns it.
pub(super) fn receive(stream: u64) -> Outcome {
    let connection = known(stream)?;
    let mut buffer = [0; CHUNK];
    match (&*connection).read(&mut buffer) {
        Ok(count) if count > 0 => Ok((0, text_of(&buffer[..count]), String::new())),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => done(RETRY),
        _ => {
            streams().remove(&stream);
            done(END)
        }
    }
}

fn known(stream: u64) -> io::Result<Arc<TcpStream>> {
    streams()
        .get(&stream)
        .cloned()
        .ok_or_else(|| ErrorKind::NotConnected.into())
}

fn streams() -> std::sync::MutexGuard<'static, HashMap<u64, Arc<TcpStream>>> {
    STREAMS.lock().expect("no holder of this lock panics")
}

fn done(code: i32) -> Outcome {
    Ok((code, String::new(), String::new()))
}
