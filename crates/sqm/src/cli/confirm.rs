//! `sqm start --confirm SECONDS` and `sqm confirm`: a change that ends by itself unless somebody is still there to say
//! that it may stay.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use sqm_files::Lock;
use sqm_kernel::state;

use sqm_configuration::commit_confirm::{UNDOING, unconfirmed, undoing};
use sqm_process::failure::Failure;

/// How often the file is looked at.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Keep what `sqm start --confirm` set up in another terminal.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm start --confirm 60
  sqm confirm")]
pub(crate) struct Confirm {
    /// Where the other one keeps its state.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Confirm {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if sqm_files::remove(&unconfirmed(&self.state_dir)).context("cannot confirm")? {
            outln!("confirmed: it stays");
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::Failed(anyhow!(
            "nothing waits for a confirmation: it was confirmed or put back already"
        )))
    }
}

/// A change that nobody has confirmed yet; others take it for settled when this is gone.
pub(super) struct Trial {
    directory: PathBuf,
    /// Its lock says that somebody waits.
    _awaited: Lock,
    hung_up: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Trial {
    /// Says that a confirmation is awaited; before others may look at what was changed.
    pub(super) fn announce(directory: &Path) -> Result<Self, Failure> {
        const WHY: &str = "cannot wait for a confirmation";
        // The line that is changed may be the one that this terminal hangs on: its end must not end the waiting.
        let (hung_up, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        flag::register(SIGHUP, Arc::clone(&hung_up)).context(WHY)?;
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&ended)).context(WHY)?;
        }
        let file = unconfirmed(directory);
        if let Some(aside) = sqm_files::set_aside_irregular(&file).context(WHY)? {
            errln!("{} was no file, and is {} now", file.display(), aside.display());
        }
        let awaited = Lock::try_take(&file).context(WHY)?;
        let mut awaited = awaited.context("somebody else waits for a confirmation")?;
        // The lock counts, not the text, for which a full disk may have no room.
        let _ = awaited.sign(&std::process::id().to_string());
        Ok(Self {
            directory: directory.to_owned(),
            _awaited: awaited,
            hung_up,
            ended,
        })
    }

    /// Says that what was not confirmed has been put back.
    pub(super) fn settle(self) -> Result<(), Failure> {
        sqm_files::remove(&undoing(&self.directory))?;
        Ok(())
    }

    /// Waits until somebody confirms: by Enter in this terminal, or by `sqm confirm` in another. False if nobody did in
    /// time.
    pub(super) fn wait(&self, seconds: u32) -> Result<bool, Failure> {
        let file = unconfirmed(&self.directory);
        errln!(
            "Keep it? Press Enter, or run 'sqm confirm', within {seconds} s; else everything is put back."
        );
        let end = Instant::now() + Duration::from_secs(seconds.into());
        let stdin = std::io::stdin();
        let terminal = stdin.is_terminal();
        let confirmed = loop {
            if !file.exists() {
                break true;
            }
            if Instant::now() >= end || self.ended.load(Ordering::Relaxed) {
                break false;
            }
            // Without a terminal nobody can press a key, and an end of input is no answer.
            let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
            let watched = if terminal && !self.hung_up.load(Ordering::Relaxed) {
                &mut watched[..]
            } else {
                &mut []
            };
            match poll(watched, Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let mut line = String::new();
                    // A terminal that is gone confirms nothing.
                    if stdin.read_line(&mut line).is_ok_and(|n| n > 0) {
                        break true;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(_) => break false,
            }
        };
        if confirmed {
            sqm_files::remove(&file)?;
            return Ok(true);
        }
        // From here on nobody can confirm it, and nobody takes it for settled until it is put back.
        match sqm_files::rename(&file, UNDOING) {
            Err(error) if error.is_not_found() => Ok(true),
            renamed => Ok(renamed.map(|()| false)?),
        }
    }
}
