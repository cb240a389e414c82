//! The guest's side of [`crate::forward`], [`crate::terminal`] and [`crate::program`]: connections to its virtual hosts, and terminals and
//! programs on them, by the numbers that the host gave them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Outcome;
use super::program::{Piece, Program, Progress};
use super::terminal::Terminal;
use crate::forward::{CHUNK, END, RETRY};
use crate::protocol::{bytes_of, text_of};

/// A source of bytes; all but programs take bytes as well.
#[derive(Clone)]
enum Stream {
    Connection(Arc<TcpStream>),
    Terminal(Arc<Terminal>),
    Program(Arc<Program>),
}

static STREAMS: LazyLock<Mutex<HashMap<u64, Stream>>> = LazyLock::new(Mutex::default);

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
    streams().insert(stream, Stream::Connection(Arc::new(connection)));
    done(0)
}

/// Starts a shell on the virtual host.
pub(super) fn open_terminal(host: &str, stream: u64, size: (u16, u16), kind: &str) -> Outcome {
    let terminal = Terminal::open(host, stream, size, kind)?;
    streams().insert(stream, Stream::Terminal(Arc::new(terminal)));
    done(0)
}

/// Starts a program on the virtual host.
pub(super) fn start(host: &str, argv: &[String], stream: u64) -> Outcome {
    let program = Program::start(host, argv)?;
    streams().insert(stream, Stream::Program(Arc::new(program)));
    done(0)
}

/// Interrupts a program.
pub(super) fn interrupt(stream: u64) -> Outcome {
    if let Stream::Program(program) = known(stream)? {
        program.interrupt()?;
    }
    done(0)
}

/// Forgets a stream.
pub(super) fn close(stream: u64) -> Outcome {
    streams().remove(&stream);
    done(0)
}

/// Changes the size of a terminal.
pub(super) fn resize(stream: u64, size: (u16, u16)) -> Outcome {
    if let Stream::Terminal(terminal) = known(stream)? {
        terminal.resize(size)?;
    }
    done(0)
}

/// Writes to a stream. An empty text ends this direction of a connection.
pub(super) fn send(stream: u64, text: &str) -> Outcome {
    let bytes = bytes_of(text)?;
    match known(stream)? {
        Stream::Connection(connection) if bytes.is_empty() => connection.shutdown(Shutdown::Write)?,
        Stream::Connection(connection) => (&*connection).write_all(&bytes)?,
        Stream::Terminal(terminal) => terminal.write(&bytes)?,
        Stream::Program(_) => return Err(ErrorKind::Unsupported.into()),
    }
    done(0)
}

/// Waits for data on a stream and returns it.
pub(super) fn receive(stream: u64) -> Outcome {
    let mut buffer = [0; CHUNK];
    let known = known(stream)?;
    let read = match &known {
        Stream::Program(program) => return receive_output(program, stream),
        Stream::Connection(connection) => match (&**connection).read(&mut buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            read => read.map(Some),
        },
        Stream::Terminal(terminal) => terminal.read(&mut buffer, WAIT),
    };
    match read {
        Ok(None) => done(RETRY),
        Ok(Some(count)) if count > 0 => Ok((0, text_of(&buffer[..count]), String::new())),
        _ => {
            streams().remove(&stream);
            match known {
                Stream::Connection(_) | Stream::Program(_) => done(END),
                Stream::Terminal(terminal) => Ok((END, terminal.exit_code().to_string(), String::new())),
            }
        }
    }
}

fn receive_output(program: &Program, stream: u64) -> Outcome {
    match program.read(WAIT) {
        Progress::Nothing => done(RETRY),
        Progress::Output(Piece::Stdout(bytes)) => Ok((0, text_of(&bytes), String::new())),
        Progress::Output(Piece::Stderr(bytes)) => Ok((0, String::new(), text_of(&bytes))),
        Progress::Ended(code) => {
            streams().remove(&stream);
            Ok((END, code.to_string(), String::new()))
        }
    }
}

fn known(stream: u64) -> io::Result<Stream> {
    streams()
        .get(&stream)
        .cloned()
        .ok_or_else(|| ErrorKind::NotConnected.into())
}

fn streams() -> std::sync::MutexGuard<'static, HashMap<u64, Stream>> {
    STREAMS.lock().expect("no holder of this lock panics")
}

fn done(code: i32) -> Outcome {
    Ok((code, String::new(), String::new()))
}
