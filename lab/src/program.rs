//! A program in the running lab, whose output this process receives as it comes.

use crate::forward::RETRY;
use crate::keeper::ask;
use crate::protocol::{Act, bytes_of};
use crate::{Error, Output};

/// A program that runs on a virtual host.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    stream: u64,
}

/// A step of a program.
#[derive(Clone, Debug)]
pub enum Event {
    /// It wrote these bytes.
    Output {
        /// On standard output.
        stdout: Vec<u8>,
        /// On standard error.
        stderr: Vec<u8>,
    },
    /// It ended with this code; 128 + n for signal n.
    Ended(i32),
}

impl Program {
    /// Starts a program. A process can have one at a time.
    pub fn start(host: &str, argv: Vec<String>) -> Result<Self, Error> {
        let stream = u64::from(std::process::id()) << 32;
        let host = host.to_owned();
        let started = ask(&Act::Start { host, argv, stream })?;
        match started.code {
            0 => Ok(Self { stream }),
            _ => Err(Error::State(format!(
                "cannot start the program: {}",
                started.stderr
            ))),
        }
    }

    /// Waits until the program writes or ends.
    pub fn next(self) -> Result<Event, Error> {
        let Self { stream } = self;
        loop {
            let Output { code, stdout, stderr } = ask(&Act::Receive { stream })?;
            let bytes =
                |text| bytes_of(text).map_err(|e| Error::State(format!("the lab sent damaged output: {e}")));
            match code {
                0 => {
                    return Ok(Event::Output {
                        stdout: bytes(&stdout)?,
                        stderr: bytes(&stderr)?,
                    });
                }
                RETRY => {}
                _ => return Ok(Event::Ended(stdout.parse().unwrap_or(1))),
            }
        }
    }

    /// Interrupts the program and its children, as Ctrl-C does at a terminal.
    pub fn interrupt(self) -> Result<(), Error> {
        ask(&Act::Interrupt { stream: self.stream }).map(drop)
    }

    /// Stops reading the program's output: it receives SIGPIPE when it writes more.
    pub fn close(self) -> Result<(), Error> {
        ask(&Act::Close { stream: self.stream }).map(drop)
    }
}
