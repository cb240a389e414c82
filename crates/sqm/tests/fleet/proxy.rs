//! Stands between a command and its server, counts the command's requests, and does something at one of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// How often it is looked whether the command has connected or ended.
const POLL: Duration = Duration::from_millis(5);

pub(crate) struct Proxy {
    listener: TcpListener,
    server: u16,
}

/// An event at a request of the command.
pub(crate) enum Event<'a> {
    Nothing,
    /// The command is killed when the server has been sent the request with this number, before the answer.
    Kill(usize),
    /// This is done before the server is sent the request with this number.
    Before(usize, &'a dyn Fn()),
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct End {
    /// `None`: it was killed.
    pub(crate) code: Option<i32>,
    /// The requests that have reached the server.
    pub(crate) requests: usize,
}

impl Proxy {
    pub(crate) fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        Self { listener, server }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.listener.local_addr().expect("an address"))
    }

    pub(crate) fn run(&self, command: &mut Command, event: &Event<'_>) -> End {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sqm starts");
        let mut requests = 0;
        if let Some(client) = self.accept(&mut child) {
            let server = TcpStream::connect(("127.0.0.1", self.server)).expect("the server listens");
            let back = thread::spawn({
                let (server, client) = (clone(&server), clone(&client));
                move || answers(server, client)
            });
            let mut client = BufReader::new(client);
            while let Some(message) = next_message(&mut client) {
                let is_request = is_request(&message);
                requests += usize::from(is_request);
                if let Event::Before(number, act) = event
                    && is_request
                    && *number == requests
                {
                    act();
                }
                if (&server).write_all(&message).is_err() {
                    break;
                }
                if matches!(event, Event::Kill(last) if *last == requests) {
                    child.kill().expect("it runs");
                    break;
                }
            }
            // The server reads what it was sent, and ends the connection.
            let _ = server.shutdown(Shutdown::Write);
            back.join().expect("no panic");
        }
        let status = child.wait().expect("our child");
        End {
            code: status.code(),
            requests,
        }
    }

    /// The connection of the command; `None` if it ends without one.
    fn accept(&self, child: &mut Child) -> Option<TcpStream> {
        loop {
            if let Ok((client, _)) = self.listener.accept() {
                client.set_nonblocking(false).expect("a socket");
                return Some(client);
            }
            if child.try_wait().expect("our child").is_some() {
                return None;
            }
            thread::sleep(POLL);
        }
    }
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor")
}

/// The next message of the client; `None` at the end of the connection.
fn next_message(client: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    if client.read_until(b'\n', &mut message).ok()? == 0 {
        return None;
    }
    if is_request(&message) {
        let line = String::from_utf8_lossy(&message);
        let length = line
            .split_whitespace()
            .last()
            .and_then(|length| length.parse().ok());
        let length: u64 = length.expect("the length ends the line");
        client.by_ref().take(length + 2).read_to_end(&mut message).ok()?;
    }
    Some(message)
}

fn is_request(message: &[u8]) -> bool {
    message.starts_with(b"PUB ") || message.starts_with(b"HPUB ")
}

/// Passes the answers back. Those for a client that has gone are read as well, or the server would not read on.
fn answers(mut server: TcpStream, mut client: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let _ = client.write_all(&buffer[..length]);
    }
    let _ = client.shutdown(Shutdown::Both);
}
