//! The log of samples and decisions, for plots and replays ([`sqm_autorate::trace`]).
//!
//! The file's name is in the configuration, which users without root's privileges may be allowed to change. So the name has no
//! folder, and only a file that is a log of autorate is appended to or renamed.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::mem::discriminant;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sqm_autorate::trace::{ControllerConfig, Entry, HEADER, PROGRAM, Start, Step};
use sqm_autorate::{Bounds, CapacityByHour, Decision, Probes, Sample};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Instant, Nanos, Rate};

/// A longer log, bytes, is renamed to FILE.old; a choice.
const MAX_BYTES: u64 = 8 << 20;
/// The shortest time between two lines for changed rates; a choice. A changed reason is always written.
const CHANGED_INTERVAL: Nanos = Nanos::from_millis(50);
/// The longest time between two lines while there is traffic; a choice.
const BUSY_INTERVAL: Nanos = Nanos::from_millis(200);
/// The number of steps in one line of the log: a minute on an idle line. A choice.
const MAX_STEPS: usize = 120;

/// Only root may read the log: it shows when people are at home.
const FILE_MODE: u32 = 0o600;
/// The permissions of the log's folder.
const FOLDER_MODE: u32 = 0o750;

/// The log of one controller. Without a path it writes nothing.
pub(super) struct Log {
    path: Option<PathBuf>,
    file: Option<File>,
    written: u64,
    bounds: PerDirection<Bounds>,
    /// The controller's start, until it has been written.
    start: Option<Start>,
    /// The steps since the last line.
    steps: Vec<Step>,
    /// The time and the decision of the last line.
    last: Option<(Instant, Decision)>,
    /// The last decision, and the throughput at that time.
    now: Option<(Decision, PerDirection<Rate>)>,
    /// Why the log cannot be written.
    error: Option<String>,
    /// The error that was reported last.
    reported: Option<String>,
}

impl Log {
    /// The log of a controller that starts now.
    pub(super) fn new(
        path: Option<PathBuf>,
        now: Instant,
        bounds: PerDirection<Bounds>,
        learned: &PerDirection<CapacityByHour>,
    ) -> Self {
        Self {
            path,
            file: None,
            written: 0,
            bounds,
            start: Some(Start {
                at: now,
                resumes: None,
                config: Box::new(config(bounds, learned)),
            }),
            steps: Vec::new(),
            last: None,
            now: None,
            error: None,
            reported: None,
        }
    }

    /// Adds a step of the controller: its samples, its decision, and the capacities that it has learned by then. Writes a line if
    /// one is due.
    pub(super) fn step(
        &mut self,
        now: Instant,
        samples: &[Sample],
        decision: &Decision,
        loads: PerDirection<Rate>,
        learned: &PerDirection<CapacityByHour>,
    ) {
        if self.path.is_none() {
            return;
        }
        self.steps.push(Step {
            at: now,
            samples: samples.to_vec(),
        });
        self.now = Some((*decision, loads));
        if self.is_due(now, decision) {
            self.write(learned);
        }
    }

    fn is_due(&self, now: Instant, decision: &Decision) -> bool {
        let Some((at, last)) = &self.last else {
            return true;
        };
        let since = now.since(*at);
        let is_other = |direction: Direction| {
            let [new, old] = [decision, last].map(|decision| decision.rates[direction]);
            discriminant(&new.reason) != discriminant(&old.reason)
                || new.rate != old.rate && since >= CHANGED_INTERVAL
        };
        Direction::BOTH.into_iter().any(is_other)
            || decision.probes != last.probes
            || decision.probes != Probes::Off && since >= BUSY_INTERVAL
            || self.steps.len() >= MAX_STEPS
    }

    /// Writes a line with all steps since the last one. After an error these steps are lost, and the next line begins with a new
    /// start.
    pub(super) fn write(&mut self, learned: &PerDirection<CapacityByHour>) {
        let (Some(step), Some((decision, loads))) = (self.steps.last(), self.now) else {
            return;
        };
        let at = step.at;
        let opened = self.open(at, learned);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let row = Entry {
            unix_ms: since.as_millis() as u64,
            at,
            decision,
            throughput: loads,
            start: self.start.take(),
            steps: std::mem::take(&mut self.steps),
        };
        self.last = Some((at, decision));
        let is_written = opened.and_then(|()| self.put(&format!("{row}\n")));
        if is_written.is_err() {
            // A line is lost: replays must start again.
            self.file = None;
            self.start = Some(self.resume(at, learned));
        }
        self.error = is_written.err().map(|error| error.to_string());
    }

    /// A message if the log cannot be written, or can again, since the last call.
    pub(super) fn take_message(&mut self) -> Option<String> {
        if self.error == self.reported {
            return None;
        }
        self.reported.clone_from(&self.error);
        let path = self.path.as_ref()?.display();
        Some(match &self.error {
            Some(error) => format!("cannot write the log {path}: {error}"),
            None => format!("the log {path} is written again"),
        })
    }

    /// Opens the file if necessary, and replaces one that is full.
    fn open(&mut self, at: Instant, learned: &PerDirection<CapacityByHour>) -> std::io::Result<()> {
        let Some(path) = self.path.clone() else {
            return Ok(());
        };
        if self.written > MAX_BYTES {
            rotate(&path)?;
            (self.file, self.written) = (None, 0);
            if self.start.is_none() {
                let before = self.last.map_or(at, |(last, _)| last);
                self.start = Some(self.resume(before, learned));
            }
        }
        if self.file.is_some() {
            return Ok(());
        }
        let file = open(&path)?;
        self.written = file.metadata()?.len();
        let mut last = [0];
        let head = match self.written.checked_sub(1) {
            None => Some(format!("{HEADER}\n")),
            // The last line is incomplete, because its writer was interrupted: end it.
            Some(end) if file.read_exact_at(&mut last, end).is_ok() && last != *b"\n" => {
                Some("\n".to_owned())
            }
            Some(_) => None,
        };
        self.file = Some(file);
        head.map_or(Ok(()), |head| self.put(&head))
    }

    /// The start of a log that continues an earlier one, whose last line was at `last`.
    fn resume(&self, last: Instant, learned: &PerDirection<CapacityByHour>) -> Start {
        Start {
            at: last,
            resumes: Some(last),
            config: Box::new(config(self.bounds, learned)),
        }
    }

    /// Appends text to the file.
    fn put(&mut self, text: &str) -> std::io::Result<()> {
        let Some(file) = &mut self.file else {
            return Err(std::io::ErrorKind::NotFound.into());
        };
        file.write_all(text.as_bytes())?;
        self.written += text.len() as u64;
        Ok(())
    }
}

/// Opens a log to append to it. Creates it and its folder if they are missing.
fn open(path: &Path) -> io::Result<File> {
    let file = match sqm_files::append(path, FILE_MODE) {
        Err(error) if error.is_not_found() => {
            let folder = path.parent().unwrap_or_else(|| Path::new("."));
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(folder)?;
            sqm_files::append(path, FILE_MODE)
        }
        file => file,
    };
    let file = file?;
    require_log(&file)?;
    Ok(file)
}

/// Returns an error if the file is neither empty nor a log of autorate.
fn require_log(file: &File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut head = vec![0; HEADER.len()];
    let is_log = file.read_exact_at(&mut head, 0).is_ok() && head == HEADER.as_bytes();
    is_log
        .then_some(())
        .ok_or_else(|| io::Error::other("the file is not a log of autorate and is left unchanged"))
}

/// Renames a full log to FILE.old, and replaces an earlier one.
fn rotate(path: &Path) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".old");
    let old = path.with_file_name(&name);
    if old.symlink_metadata().is_ok() {
        require_log(&sqm_files::append(&old, FILE_MODE)?)?;
    }
    match sqm_files::append(path, FILE_MODE) {
        Ok(file) => require_log(&file)?,
        // Another process has removed it.
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let name = name.to_str().ok_or(ErrorKind::InvalidInput)?;
    Ok(sqm_files::rename(path, name)?)
}

fn config(bounds: PerDirection<Bounds>, learned: &PerDirection<CapacityByHour>) -> ControllerConfig {
    ControllerConfig {
        program: PROGRAM.to_owned(),
        bounds,
        learned: *learned,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use sqm_autorate::trace::replay::Replay;
    use sqm_autorate::{Autorate, Controller, Signal};
    use sqm_core::units::Bytes;
    use sqm_measure::autorate_trace;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOTHING: PerDirection<Rate> = PerDirection {
        download: Rate::from_bits_per_sec(0),
        upload: Rate::from_bits_per_sec(0),
    };

    /// A controller with its log.
    struct Recorded {
        controller: Autorate,
        log: Log,
    }

    impl Recorded {
        fn begin(path: &Path, now: u64) -> Self {
            let base = Bounds {
                base: Some(Rate::from_kbits_per_sec(20_000)),
                ..Bounds::default()
            };
            let (bounds, learned) = (
                PerDirection {
                    download: base,
                    upload: base,
                },
                PerDirection::default(),
            );
            let now = Instant(now);
            Self {
                controller: Autorate::new(now, bounds, learned),
                log: Log::new(Some(path.to_owned()), now, bounds, &learned),
            }
        }

        fn step(&mut self, now: u64, bytes: u64, lost: usize) {
            let now = Instant(now);
            let sample = |signal| Sample { at: now, signal };
            let traffic = |direction| {
                sample(Signal::Traffic {
                    direction,
                    bytes: Bytes(bytes),
                    span: Nanos::from_millis(50),
                })
            };
            let mut samples = Direction::BOTH.map(traffic).to_vec();
            samples.extend(vec![sample(Signal::Lost { reflector: 1 }); lost]);
            let decision = self.controller.step(now, &samples);
            self.log
                .step(now, &samples, &decision, NOTHING, self.controller.learned());
        }
    }

    /// Replays logs. Returns the number of lines, of controller starts, of starts from an inexact state, of decisions that differ
    /// from the log's, and of incomplete lines.
    fn replayed(logs: &[&Path]) -> (usize, usize, usize, usize, usize) {
        let mut replay = Replay::new(|now, config| {
            assert_eq!(config.program, PROGRAM);
            Autorate::new(now, config.bounds, config.learned)
        });
        let mut seen = (0, 0, 0, 0, 0);
        for log in logs {
            let cuts = autorate_trace::read(log, &mut |_, row| {
                let played = replay.play(&row);
                seen.0 += 1;
                seen.1 += usize::from(played.is_new);
                seen.2 += usize::from(played.is_new && !played.is_exact);
                seen.3 += usize::from(played.decision != row.decision);
            });
            seen.4 += cuts.expect("a log").len();
        }
        seen
    }

    #[test]
    fn the_log_grows_by_a_line_a_minute_when_idle_and_five_a_second_under_load() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut recorded = Recorded::begin(&path, 0);
        for n in 1..=600 {
            recorded.step(n * SECOND / 2, 0, 0);
        }
        recorded.log.write(recorded.controller.learned());
        let (idle, begins, amid, others, cut) = replayed(&[&path]);
        // In the first five seconds the controller does not know yet that the line is idle.
        assert!((5..=17).contains(&idle), "{idle} lines in five minutes");
        assert_eq!((begins, amid, others, cut), (1, 0, 0, 0));
        assert!(fs::metadata(&path).expect("a file").len() < 5 * 60 * 100);
        for n in 1..=1200 {
            recorded.step(300 * SECOND + n * SECOND / 20, 100_000, 0);
        }
        recorded.log.write(recorded.controller.learned());
        let (all, _, _, others, _) = replayed(&[&path]);
        assert!((300..=600).contains(&(all - idle)), "{all} lines");
        assert_eq!(others, 0);
    }

    #[test]
    fn a_rotated_log_and_its_successor_replay_as_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("log"), folder.path().join("log.old"));
        let mut recorded = Recorded::begin(&path, 0);
        let mut now = 0;
        while !old.exists() {
            now += SECOND / 4;
            recorded.step(now, 100_000, 3000);
        }
        for _ in 0..10 {
            now += SECOND / 4;
            recorded.step(now, 100_000, 0);
        }
        assert!(fs::metadata(&old).expect("a file").len() < MAX_BYTES + (1 << 16));
        let (_, begins, amid, others, _) = replayed(&[&old, &path]);
        assert_eq!((begins, amid, others), (1, 0, 0));
        let (lines, begins, amid, ..) = replayed(&[&path]);
        assert_eq!((lines, begins, amid), (11, 1, 1));
    }

    #[test]
    fn a_log_can_be_replayed_after_a_kill_and_after_a_write_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut recorded = Recorded::begin(&path, 0);
        for n in 1..=10 {
            recorded.step(n * SECOND, 100_000, 0);
        }
        let whole = fs::read(&path).expect("a log");
        fs::write(&path, &whole[..whole.len() - 5]).expect("half of it");
        let mut recorded = Recorded::begin(&path, 20 * SECOND);
        for n in 21..=30 {
            recorded.step(n * SECOND, 100_000, 0);
        }
        assert_eq!(replayed(&[&path]), (19, 2, 0, 0, 1));
        assert_eq!(recorded.log.take_message(), None);

        // The folder cannot be created at first.
        let gone = folder.path().join("gone");
        let path = gone.join("log");
        fs::write(&gone, "a file in the place of the folder").expect("a file");
        let mut recorded = Recorded::begin(&path, 0);
        recorded.step(SECOND, 100_000, 0);
        let message = recorded.log.take_message().expect("an error");
        assert!(
            message.contains("cannot write the log") && message.contains("gone/log"),
            "{message}"
        );
        recorded.step(2 * SECOND, 100_000, 0);
        assert_eq!(recorded.log.take_message(), None, "only once");
        fs::remove_file(&gone).expect("a file");
        recorded.step(3 * SECOND, 100_000, 0);
        assert!(
            recorded
                .log
                .take_message()
                .is_some_and(|text| text.contains("again"))
        );
        let (lines, begins, amid, ..) = replayed(&[&path]);
        assert_eq!((lines, begins, amid), (1, 1, 1));
    }

    #[test]
    fn files_that_are_no_logs_are_neither_appended_to_nor_renamed() {
        use std::os::unix::fs::{MetadataExt, symlink};

        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let path = at("log");
        let target = at("theirs");
        fs::write(&target, "root-only\n").expect("a file");
        let others: [fn(&Path); 5] = [
            |path| fs::write(path, "config queue\n").expect("a file"),
            |path| fs::create_dir(path).expect("a folder"),
            |path| symlink("theirs", path).expect("a link"),
            |path| symlink("nowhere", path).expect("a link"),
            |path| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
            },
        ];
        for other in others {
            other(&path);
            let before = fs::symlink_metadata(&path).expect("it is there");
            let mut recorded = Recorded::begin(&path, 0);
            recorded.step(SECOND, 100_000, 0);
            assert!(
                recorded
                    .log
                    .take_message()
                    .is_some_and(|text| text.contains("cannot write the log"))
            );
            let after = fs::symlink_metadata(&path).expect("it is there");
            assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
            match before.is_dir() {
                true => fs::remove_dir(&path).expect("a folder"),
                false => fs::remove_file(&path).expect("a file"),
            }
        }
        assert_eq!(fs::read(&target).expect("a file"), b"root-only\n");
        assert!(!at("nowhere").exists());

        // A foreign file with the name FILE.old is not overwritten.
        fs::write(at("log.old"), "theirs").expect("a file");
        fs::write(&path, format!("{HEADER}\n{}", "x".repeat(MAX_BYTES as usize))).expect("a file");
        let mut recorded = Recorded::begin(&path, 0);
        recorded.step(SECOND, 100_000, 0);
        recorded.step(2 * SECOND, 200_000, 0);
        assert!(
            recorded
                .log
                .take_message()
                .is_some_and(|text| text.contains("not a log of autorate"))
        );
        assert_eq!(fs::read(at("log.old")).expect("a file"), b"theirs");
        fs::remove_file(at("log.old")).expect("a file");
        recorded.step(3 * SECOND, 100_000, 0);
        recorded.step(4 * SECOND, 200_000, 0);
        assert!(fs::metadata(at("log.old")).expect("a file").len() > MAX_BYTES);
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
    }
}
