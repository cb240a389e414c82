//! Keeps a lab running between commands: a background process, the keeper, holds the guest and listens on a Unix socket.
//!
//! A connection carries one [`Act`] as a line of JSON, and one answer.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::Act;
use crate::{Error, Guest, Output};

/// The answer of the keeper.
#[derive(Serialize, Deserialize)]
enum Answer {
    Done {
        code: i32,
        stdout: String,
        stderr: String,
    },
    Failed(String),
}

/// Starts a keeper in the background, and returns when its network is ready. `program` is `sqm`, and `words` are the arguments
/// with which it calls [`keep`].
pub fn start(program: &Path, words: &[String]) -> Result<(), Error> {
    if is_running() {
        return Err(Error::State(
            "a lab is running already; end it with 'sqm-lab down'".into(),
        ));
    }
    let mut keeper = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| Error::host("cannot start", program, e))?;
    let mut ready = String::new();
    let output = keeper.stdout.take().expect("standard output is piped");
    // The keeper prints one line when the network is ready. If it fails, it ends.
    BufReader::new(output)
        .read_line(&mut ready)
        .map_err(|e| Error::host("cannot read from", program, e))?;
    if ready == READY {
        return Ok(());
    }
    let output = keeper
        .wait_with_output()
        .map_err(|e| Error::host("cannot wait for", program, e))?;
    Err(Error::State(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

const READY: &str = "ready\n";

/// Serves requests to a guest until one asks for its end.
pub fn keep(guest: Guest) -> Result<(), Error> {
    let socket = socket_path()?;
    let guest = Arc::new(guest);
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(|e| Error::host("cannot listen on", &socket, e))?;
    let mut output = std::io::stdout();
    let written = output.write_all(READY.as_bytes()).and_then(|()| output.flush());
    written.map_err(|e| Error::host("cannot write to", "standard output", e))?;
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let (guest, end) = (Arc::clone(&guest), end.clone());
            std::thread::spawn(move || serve(&guest, connection, &end));
        }
    });
    // Returning drops the guest.
    let _ = ended.recv();
    Ok(())
}

fn serve(guest: &Guest, mut connection: UnixStream, end: &std::sync::mpsc::Sender<()>) {
    let mut line = String::new();
    let Ok(reader) = connection.try_clone() else {
        return;
    };
    if BufReader::new(reader).read_line(&mut line).is_err() {
        return;
    }
    let act = serde_json::from_str(&line);
    let is_end = matches!(act, Ok(Act::PowerOff));
    let answer = match act {
        Ok(Act::PowerOff) => {
            guest.end();
            // Before the answer: the client that receives it can start the next lab.
            if let Ok(socket) = socket_path() {
                let _ = fs::remove_file(socket);
            }
            Answer::Done {
                code: 0,
                stdout: String::new(),
                stderr: String::new(),
            }
        }
        Ok(act) => match guest.ask(act) {
            Ok(Output { code, stdout, stderr }) => Answer::Done { code, stdout, stderr },
            Err(error) => Answer::Failed(error.to_string()),
        },
        Err(error) => Answer::Failed(format!("not a request: {error}")),
    };
    let text = serde_json::to_string(&answer).expect("an answer is plain data");
    // Fails if the client is gone.
    let _ = connection.write_all(format!("{text}\n").as_bytes());
    if is_end {
        let _ = end.send(());
    }
}

/// Sends a request to the running lab.
pub fn ask(act: &Act) -> Result<Output, Error> {
    let socket = socket_path()?;
    let mut connection = UnixStream::connect(&socket)
        .map_err(|_| Error::State("no lab is running; start one with 'sqm-lab up'".into()))?;
    let text = serde_json::to_string(act).expect("a request is plain data");
    let mut line = String::new();
    connection
        .write_all(format!("{text}\n").as_bytes())
        .and_then(|()| BufReader::new(&connection).read_line(&mut line))
        .map_err(|e| Error::host("the lab did not answer on", &socket, e))?;
    match serde_json::from_str(&line) {
        Ok(Answer::Done { code, stdout, stderr }) => Ok(Output { code, stdout, stderr }),
        Ok(Answer::Failed(why)) => Err(Error::State(why)),
        Err(_) => Err(Error::State("the lab ended during the request".into())),
    }
}

fn is_running() -> bool {
    socket_path().is_ok_and(|socket| UnixStream::connect(socket).is_ok())
}

/// The socket of the keeper: `sqm-lab/socket` in the user's run-time folder, which only the user can enter. A user has one lab.
fn socket_path() -> Result<PathBuf, Error> {
    let uid = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("sqm-lab"),
        None => std::env::temp_dir().join(format!("sqm-lab-of-{uid}")),
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|e| Error::host("cannot make", &folder, e))?;
    let owner = rustix::fs::stat(&folder)
        .map_err(|e| Error::host("cannot look at", &folder, e.into()))?
        .st_uid;
    if owner != uid {
        return Err(Error::State(format!(
            "{} belongs to another user",
            folder.display()
        )));
    }
    Ok(folder.join("socket"))
}
