//! `sqm start --confirm SECONDS` and `sqm confirm`: a change is rolled back unless it is confirmed in time.

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

/// Interval at which the confirmation file is checked.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Confirm the change of `sqm start --confirm` in another terminal, so that it stays.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm start --confirm 60
  sqm confirm")]
pub(crate) struct Confirm {
    /// Folder where that command keeps its state.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Confirm {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if sqm_files::remove(&unconfirmed(&self.state_dir)).context("cannot confirm")? {
            outln!("confirmed: the change stays");
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::Failed(anyhow!(
            "no change waits for a confirmation: it was confirmed or rolled back already"
        )))
    }
}

/// A change that waits for its confirmation. Other processes consider the change settled as soon as its files are
/// gone.
pub(super) struct Trial {
    directory: PathBuf,
    /// The lock on the file. It shows other processes that this one is waiting.
    _awaited: Lock,
    hung_up: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Trial {
    /// Announces that a change waits for its confirmation. To be called before other processes can see the change.
    pub(super) fn announce(directory: &Path) -> Result<Self, Failure> {
        const WHY: &str = "cannot wait for a confirmation";
        // The terminal may be a session over the very line that is being changed. If it hangs up, the wait goes on.
        let (hung_up, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        flag::register(SIGHUP, Arc::clone(&hung_up)).context(WHY)?;
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&ended)).context(WHY)?;
        }
        let file = unconfirmed(directory);
        if let Some(aside) = sqm_files::set_aside_irregular(&file).context(WHY)? {
            errln!(
                "{} was not a regular file and has been renamed to {}",
                file.display(),
                aside.display()
            );
        }
        let awaited = Lock::try_take(&file).context(WHY)?;
        let mut awaited = awaited.context("another change waits for its confirmation")?;
        // The lock alone is the signal to others. The text in the file may fail to be written if the disk is full.
        let _ = awaited.sign(&std::process::id().to_string());
        Ok(Self {
            directory: directory.to_owned(),
            _awaited: awaited,
            hung_up,
            ended,
        })
    }

    /// Records that the rollback of an unconfirmed change is complete.
    pub(super) fn settle(self) -> Result<(), Failure> {
        sqm_files::remove(&undoing(&self.directory))?;
        Ok(())
    }

    /// Waits for a confirmation: Enter in this terminal, or `sqm confirm` in another one. False if there is none in
    /// time.
    pub(super) fn wait(&self, seconds: u32) -> Result<bool, Failure> {
        let file = unconfirmed(&self.directory);
        errln!(
            "Keep the change? Press Enter or run 'sqm confirm' within {seconds} s; otherwise it is rolled back."
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
            // Standard input counts only if it is a terminal: the end of another input is no confirmation.
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
                    // The end of input, as when the terminal is gone, confirms nothing.
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
        // After the rename `sqm confirm` no longer finds the file. The new name tells other processes that the change
        // is not settled until it has been rolled back.
        match sqm_files::rename(&file, UNDOING) {
            Err(error) if error.is_not_found() => Ok(true),
            renamed => Ok(renamed.map(|()| false)?),
        }
    }
}
