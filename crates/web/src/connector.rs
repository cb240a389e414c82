//! Connections to the daemon, made by root for a server that has given up root.
//!
//! The daemon accepts changes from root and identifies a user when it connects. A server that root started therefore leaves a root process
//! behind that does one thing: for each byte it receives, it connects to the daemon's socket and sends the connection back. An attacker who
//! controls the server can ask the daemon for what the page can ask for, but gets nothing else of root's.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::sync::Mutex;

use anyhow::Context;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, recvmsg, sendmsg,
};

use super::drop_privileges;
use sqm_process::child::PROGRAM;
use sqm_process::failure::Failure;

/// The request for a connection.
const ASK: u8 = b'c';
/// The answer that has a connection; any other byte is an errno.
const HERE: u8 = 0;

/// The channel to the root process, which ends when the channel is closed.
pub(super) struct Connector {
    channel: Mutex<UnixStream>,
    _process: Child,
}

impl Connector {
    /// Starts the process with the privileges that this one still has.
    pub(super) fn start(socket: &Path) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("cannot create a pair of sockets")?;
        let process = std::process::Command::new(PROGRAM)
            .args(["web", "--connector", "--socket"])
            .arg(socket)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the program again")?;
        Ok(Self {
            channel: Mutex::new(ours),
            _process: process,
        })
    }

    /// A new connection to the daemon, made by root.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let mut channel = self.channel.lock().expect("no holder of this lock panics");
        channel.write_all(&[ASK])?;
        let mut answer = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            channel.as_fd(),
            &mut [IoSliceMut::new(&mut answer)],
            &mut with,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let connection = with.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        match (received.bytes, answer[0], connection) {
            (0, ..) => Err(io::Error::other(
                "the process that connects to the daemon has ended: restart 'sqm web'",
            )),
            (_, HERE, Some(connection)) => Ok(connection.into()),
            (_, error, _) => Err(io::Error::from_raw_os_error(error.into())),
        }
    }
}

/// Runs as the root process, `sqm web --connector`, with the channel as standard input.
pub fn serve(socket: &Path) -> Result<ExitCode, Failure> {
    drop_privileges::drop_privileges(None)?;
    let channel = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("there is no channel")?;
    let mut channel = UnixStream::from(channel);
    let mut asked = [0];
    while channel.read(&mut asked).context("the channel broke")? == 1 {
        answer(&channel, connect(socket)).context("the channel broke")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects without blocking: a full queue of the daemon is an error.
fn connect(socket: &Path) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream)
}

fn answer(channel: &UnixStream, connection: io::Result<OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let answer = match &connection {
        Ok(_) => HERE,
        Err(error) => error
            .raw_os_error()
            .and_then(|number| u8::try_from(number).ok())
            .unwrap_or(u8::MAX),
    };
    let files: Vec<_> = connection.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(&files));
    }
    sendmsg(
        channel,
        &[IoSlice::new(&[answer])],
        &mut with,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
