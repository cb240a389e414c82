//! A shell in the lab at this machine's terminal: each key goes to the lab, and what the shell prints comes back.
//!
//! The terminal of this machine is in raw mode meanwhile. Ctrl-C is a key like others then: the lab's terminal makes a signal of it, for
//! the program that runs there.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::forward::{CHUNK, RETRY};
use crate::protocol::{Act, bytes_of, text_of};
use crate::{Error, Output};

/// Runs a shell on a virtual host until it ends, and returns its exit code. Standard input must be a terminal. What appears is
/// written to `screen`. The lab's terminal takes over a new size with the next key.
pub fn shell<A>(host: &str, screen: &mut impl Write, ask: A) -> Result<u8, Error>
where
    A: Fn(&Act) -> Result<Output, Error> + Send + Sync + 'static,
{
    let ask = Arc::new(ask);
    let stream = u64::from(std::process::id()) << 32;
    let opened = ask(&Act::Terminal {
        host: host.to_owned(),
        stream,
        size: size(),
        kind: std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned()),
    })?;
    if opened.code != 0 {
        return Err(Error::State(format!(
            "cannot start a shell on {host}: {}",
            opened.stderr
        )));
    }
    let _raw = Raw::begin().map_err(|e| Error::host("cannot set up", "the terminal", e))?;
    let keys = Arc::clone(&ask);
    std::thread::spawn(move || send_keys(stream, &*keys));
    loop {
        let Output { code, stdout, .. } = ask(&Act::Receive { stream })?;
        let shown = match code {
            0 => bytes_of(&stdout).and_then(|bytes| screen.write_all(&bytes).and_then(|()| screen.flush())),
            RETRY => Ok(()),
            _ => return Ok(stdout.parse().unwrap_or(1)),
        };
        shown.map_err(|e| Error::host("cannot write to", "standard output", e))?;
    }
}

/// Sends each key to the shell until the input or the shell ends.
fn send_keys(stream: u64, ask: &dyn Fn(&Act) -> Result<Output, Error>) {
    /// Ctrl-D, which ends a shell: the input has ended.
    const END_OF_TRANSMISSION: [u8; 1] = [4];
    let mut buffer = [0; CHUNK];
    let mut known = size();
    loop {
        let count = io::stdin().lock().read(&mut buffer).unwrap_or(0);
        let bytes = match count {
            0 => &END_OF_TRANSMISSION[..],
            count => &buffer[..count],
        };
        let now = size();
        if now != known {
            known = now;
            let _ = ask(&Act::Resize { stream, size: now });
        }
        let sent = ask(&Act::Send {
            stream,
            bytes: text_of(bytes),
        });
        if count == 0 || !sent.is_ok_and(|output| output.code == 0) {
            return;
        }
    }
}

/// Lines and columns of this machine's terminal.
fn size() -> (u16, u16) {
    /// The size of a terminal that does not know its own.
    const USUAL: (u16, u16) = (24, 80);
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => USUAL,
    }
}

/// Raw mode of the terminal, which ends with this value.
struct Raw(Termios);

impl Raw {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
