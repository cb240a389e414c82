//! Carries TCP connections of this machine into the lab, so that a browser can open what a virtual host serves.
//!
//! There is no network between the two: each connection is a number that the agent knows, and its bytes travel in
//! requests of the protocol. A request that waits for bytes from the guest keeps nobody else waiting, because the agent
//! gives each a thread.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{Act, bytes_of, text_of};
use crate::{Error, Output};

/// Most bytes in one request; a compromise between the delay of others behind it and the number of requests.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Accepts connections until the lab ends, and carries each to that port of the virtual host's loopback.
pub fn forward<A>(listener: &TcpListener, host: &str, port: u16, ask: A) -> Result<(), Error>
where
    A: Fn(&Act) -> Result<Output, Error> + Send + Sync + 'static,
{
    let ask = Arc::new(ask);
    // Numbers must differ between two programs that forward into one lab.
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
        // Nobody listens there yet: the browser sees a closed connection, as it would on a real router.
        if ask(&connect)?.code == 0 {
            carry(connection, stream, &ask)?;
        }
    }
    Ok(())
}

/// Two threads, one for each direction, which end with their connection.
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
        // An error ends the connection, as one of a network would.
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
        // No bytes say that there will be no more.
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

/// The code of an [`Act::Receive`] that waited for a while in vain.
pub(crate) const RETRY: i32 = 11;

/// The code of an [`Act::Receive`] at the connection's end.
pub(crate) const END: i32 = 1;
