//! `sqm start --confirm TIME` and `sqm confirm`: a change is rolled back unless it is confirmed in time.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use sqm_files::Lock;
use sqm_kernel::state;
use sqm_kernel::transaction::RollbackState;

use crate::json;
use sqm_configuration::commit_confirm::{self, unconfirmed};
use sqm_configuration::watchdog::{self, Held};
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
  sqm confirm

Exit codes: 0 confirmed, 1 no change waits for a confirmation, 2 wrong arguments")]
pub(crate) struct Confirm {
    /// Folder where that command keeps its state.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Outcome {
    confirmed: bool,
}

impl Confirm {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if sqm_files::remove(&unconfirmed(&self.state_dir)).context("cannot confirm")? {
            match self.json {
                true => json::print(&json::object(&Outcome { confirmed: true }))?,
                false => outln!("confirmed: the change stays"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::Failed(anyhow!(
            "no change waits for a confirmation: it was confirmed or rolled back already"
        )))
    }
}

/// Waits for the end of the command that started it, and rolls its change back if that was killed.
#[derive(clap::Args)]
pub(crate) struct Watchdog {
    #[arg(long, value_parser = Held::parse)]
    held: Held,
    #[arg(long, env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Watchdog {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        watchdog::watch(&self.state_dir, self.held)
    }
}

/// A change that waits for its confirmation. Other processes consider the change settled as soon as its files are
/// gone.
pub(super) struct Trial {
    directory: PathBuf,
    /// The lock on the file. It shows other processes that this one is waiting.
    _awaited: Lock,
    /// Rolls the change back if this process is killed.
    watchdog: watchdog::Watchdog,
    hung_up: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Trial {
    /// Announces that a change waits for its confirmation. To be called before other processes can see the change. `rollbacks` undo
    /// it, the last one first.
    pub(super) fn announce<'a>(
        directory: &Path,
        rollbacks: impl Iterator<Item = &'a RollbackState>,
    ) -> Result<Self, Failure> {
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
        commit_confirm::remove_stale_rollback(directory).context(WHY)?;
        let watchdog = start_watchdog(directory, &awaited, rollbacks);
        if watchdog.is_err() {
            sqm_files::remove(&file)?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            watchdog: watchdog?,
            _awaited: awaited,
            hung_up,
            ended,
        })
    }

    /// Records that the change is confirmed.
    pub(super) fn confirmed(self) {
        self.watchdog.dismiss();
    }

    /// Records that the rollback of an unconfirmed change is complete.
    pub(super) fn rolled_back(self) -> Result<(), Failure> {
        commit_confirm::end_rollback(&self.directory)?;
        self.watchdog.dismiss();
        Ok(())
    }

    /// Waits for a confirmation: Enter in this terminal, or `sqm confirm` in another one. False if there is none in
    /// time.
    pub(super) fn wait(&self, seconds: u64) -> Result<bool, Failure> {
        let file = unconfirmed(&self.directory);
        errln!(
            "Keep the change? Press Enter or run 'sqm confirm' within {seconds} s; otherwise it is rolled back."
        );
        let end = Instant::now() + Duration::from_secs(seconds);
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
        Ok(!commit_confirm::begin_rollback(&self.directory)?)
    }
}

/// Starts the process that rolls the change back if this one is killed. It holds the lock together with this one.
fn start_watchdog<'a>(
    directory: &Path,
    awaited: &Lock,
    rollbacks: impl Iterator<Item = &'a RollbackState>,
) -> anyhow::Result<watchdog::Watchdog> {
    let lock = awaited.share().context("cannot share the lock of the change")?;
    let mut watchdog = watchdog::Watchdog::start(directory, Held::UnconfirmedChange, Some(lock))?;
    for rollback in rollbacks {
        watchdog
            .send(rollback)
            .context("cannot reach the watchdog process that restores the shaping if this one is killed")?;
    }
    Ok(watchdog)
}
