//! Forwards TCP connections of this machine into the lab, so that a browser can open the pages of a virtual host.
//!
//! There is no network between host and guest. Each connection has a number, and its bytes travel in
//! requests of the protocol. A request that waits for bytes from the guest does not delay others, because the agent
//! has a thread for each request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{Act, bytes_of, text_of};
use crate::{Error, Output};

/// Largest number of bytes in one request. A choice: larger requests delay others, smaller ones are more numerous.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Accepts connections until the lab ends, and forwards each to that port of the virtual host's loopback.
pub fn forward<A>(listener: &TcpListener, host: &str, port: u16, ask: A) -> Result<(), Error>
where
    A: Fn(&Act) -> Result<Output, Error> + Send + Sync + 'static,
{
    let ask = Arc::new(ask);
    // Two programs that forward into one lab must not use the same numbers.
    let next = AtomicU64::new(u64::from(std::process::id()) << 32);
    for connection in listener.incoming() {
        let connection =
            connection.map_err(|e| Error::State(format!("cannot accept a connection for the lab: {e}")))?;
        let stream = next.fetch_add(1, Ordering::Relaxed);
        let connect = Act::Connect {
            host: host.into(),
            port,
            stream,
        };
        // If no process listens there, the browser sees a closed connection, as with a real router.
        if ask(&connect)?.code == 0 {
            carry(connection, stream, &ask)?;
        }
    }
    Ok(())
}

/// Starts two threads, one for each direction. They end with the connection.
fn carry<A>(connection: TcpStream, stream: u64, ask: &Arc<A>) -> Result<(), Error>
where
    A: Fn(&Act) -> Result<Output, Error> + Send + Sync + 'static,
{
    let reader = connection
        .try_clone()
        .map_err(|e| Error::State(format!("cannot share a connection: {e}")))?;
    let (into, from) = (Arc::clone(ask), Arc::clone(ask));
    std::thread::spawn(move || into_the_guest(reader, stream, &*into));
    std::thread::spawn(move || {
        // An error ends the connection, as a network error would.
        let _ = from_the_guest(&connection, stream, &*from);
        let _ = connection.shutdown(Shutdown::Both);
    });
    Ok(())
}

fn into_the_guest(mut reader: TcpStream, stream: u64, ask: &dyn Fn(&Act) -> Result<Output, Error>) {
    let mut buffer = [0; CHUNK];
    loop {
        let count = reader.read(&mut buffer).unwrap_or(0);
        let bytes = text_of(&buffer[..count]);
        // An empty request ends this direction.
        let sent = ask(&Act::Send { stream, bytes });
        if count == 0 || !sent.is_ok_and(|output| output.code == 0) {
            return;
        }
    }
}

fn from_the_guest(
    mut writer: &TcpStream,
    stream: u64,
    ask: &dyn Fn(&Act) -> Result<Output, Error>,
) -> io::Result<()> {
    loop {
        let Ok(Output { code, stdout, .. }) = ask(&Act::Receive { stream }) else {
            return Ok(());
        };
        match code {
            0 => writer.write_all(&bytes_of(&stdout)?)?,
            RETRY => {}
            _ => return Ok(()),
        }
    }
}

/// The code of an [`Act::Receive`] that timed out without data.
pub(crate) const RETRY: i32 = 11;

/// The code of an [`Act::Receive`] at the end of the connection.
pub(crate) const END: i32 = 1;
