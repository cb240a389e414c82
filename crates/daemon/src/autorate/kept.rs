//! What was learned of a line, kept while the daemon is not there.

use std::path::{Path, PathBuf};

use sqm_autorate::{CapacityByHour, capacity_by_hour};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Nanos};

/// It is written at most so often, and when the daemon ends.
const BETWEEN: Nanos = Nanos::from_millis(600_000);

/// What is learned of a line tells when people are at home.
const MODE: u32 = 0o600;

/// The file of one interface.
pub(super) struct Kept {
    path: PathBuf,
    written: PerDirection<CapacityByHour>,
    written_at: Instant,
    /// Why it cannot be written, and what was told of that.
    trouble: Option<String>,
    told: Option<String>,
}

impl Kept {
    /// Also what it says; and what is wrong with it, if there is something: it is then as if there were none.
    pub(super) fn open(state_dir: &Path, interface: &str, now: Instant) -> (Self, Option<String>) {
        let path = folder(state_dir).join(format!("autorate-{interface}.learned"));
        let (written, trouble) = match read(&path) {
            Ok(learned) => (learned, None),
            Err(trouble) => {
                // A damaged file is replaced; what is no file cannot be.
                let aside = match sqm_files::set_aside_irregular(&path) {
                    Ok(Some(aside)) => format!("; it is {} now", aside.display()),
                    _ => String::new(),
                };
                let path = path.display();
                let text = format!("{path} is left out: {trouble}; what was learned is lost{aside}");
                (PerDirection::default(), Some(text))
            }
        };
        let kept = Self {
            path,
            written,
            written_at: now,
            trouble: None,
            told: None,
        };
        (kept, trouble)
    }

    pub(super) const fn learned(&self) -> PerDirection<CapacityByHour> {
        self.written
    }

    /// Writes it if it is time to.
    pub(super) fn keep(&mut self, now: Instant, learned: &PerDirection<CapacityByHour>) {
        if now.since(self.written_at) >= BETWEEN {
            self.written_at = now;
            self.write(learned);
        }
    }

    /// Writes it, if it is news. Without a place to keep it the next daemon learns anew.
    pub(super) fn write(&mut self, learned: &PerDirection<CapacityByHour>) {
        if *learned == self.written {
            return;
        }
        let written = sqm_files::replace(&self.path, MODE, capacity_by_hour::write(learned).as_bytes());
        if written.is_ok() {
            self.written = *learned;
        }
        self.trouble = written.err().map(|error| error.to_string());
    }

    /// Why it cannot be written, if that is news.
    pub(super) fn news(&mut self) -> Option<String> {
        if self.trouble == self.told {
            return None;
        }
        self.told.clone_from(&self.trouble);
        Some(match &self.trouble {
            Some(trouble) => format!("what is learned of the line cannot be kept: {trouble}"),
            None => "what is learned of the line is kept again".to_owned(),
        })
    }
}

/// Where systemd keeps what outlives a restart of the machine, if the unit has `StateDirectory=`; else where the records are.
fn folder(state_dir: &Path) -> PathBuf {
    std::env::var_os("STATE_DIRECTORY").map_or_else(|| state_dir.to_owned(), PathBuf::from)
}

fn read(path: &Path) -> Result<PerDirection<CapacityByHour>, String> {
    let limit = capacity_by_hour::MAX_BYTES as u64;
    let Some(bytes) = sqm_files::read_if_there(path, limit).map_err(|error| error.to_string())? else {
        return Ok(PerDirection::default());
    };
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    capacity_by_hour::read(&text).map_err(|trouble| trouble.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sqm_core::units::Rate;

    use super::*;

    #[test]
    fn a_restart_knows_and_a_broken_file_is_told_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Kept::open(folder.path(), "wan0", Instant(0));
        let (mut kept, trouble) = open();
        assert_eq!((kept.learned(), trouble), (PerDirection::default(), None));
        let mut learned = PerDirection::<CapacityByHour>::default();
        learned.upload.hours[20] = Some(Rate::from_kbits_per_sec(4000));
        kept.keep(Instant(BETWEEN.0 - 1), &learned);
        assert!(!kept.path.exists(), "not yet");
        kept.keep(Instant(BETWEEN.0), &learned);
        assert_eq!(kept.news(), None);
        assert_eq!(open().0.learned(), learned);
        for broken in [&b"sqm autorate learned 1\nupload"[..], b"\xff\xfe", &[b'x'; 9000]] {
            fs::write(&kept.path, broken).expect("a file");
            let (mut kept, trouble) = open();
            assert!(trouble.is_some_and(|text| text.contains("autorate-wan0.learned")));
            assert_eq!(kept.learned(), PerDirection::default());
            kept.write(&learned);
            assert_eq!(open().0.learned(), learned);
        }
        // A directory in its place, before and while the daemon is there.
        fs::remove_file(&kept.path).expect("a file");
        fs::create_dir(&kept.path).expect("a directory");
        let (mut kept, trouble) = open();
        assert!(trouble.is_some_and(|text| text.contains(".learned.damaged")));
        kept.write(&learned);
        assert_eq!((open().0.learned(), kept.news()), (learned, None));
        fs::remove_file(&kept.path).expect("a file");
        fs::create_dir(&kept.path).expect("a directory");
        kept.write(&PerDirection::default());
        assert!(kept.news().is_some_and(|news| news.contains("is a directory")));
        assert_eq!(kept.news(), None, "once");
    }
}
