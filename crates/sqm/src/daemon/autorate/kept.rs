//! What was learned of a line, kept while the daemon is not there.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use sqm_core::autorate::{Both, Learned, memory};
use sqm_core::units::{Instant, Nanos};

use crate::replace::replace;

/// It is written at most so often, and when the daemon ends.
const BETWEEN: Nanos = Nanos::from_millis(600_000);

/// The file of one interface.
pub(super) struct Kept {
    path: PathBuf,
    written: Both<Learned>,
    written_at: Instant,
}

impl Kept {
    /// Also what it says; and what is wrong with it, if there is something: it is then as if there were none.
    pub(super) fn open(state_dir: &Path, interface: &str, now: Instant) -> (Self, Option<String>) {
        let path = folder(state_dir).join(format!("autorate-{interface}.learned"));
        let (written, trouble) = match read(&path) {
            Ok(learned) => (learned, None),
            Err(trouble) => {
                let text = format!(
                    "{} is left out: {trouble}; what was learned is lost",
                    path.display()
                );
                (Both::default(), Some(text))
            }
        };
        let kept = Self {
            path,
            written,
            written_at: now,
        };
        (kept, trouble)
    }

    pub(super) const fn learned(&self) -> Both<Learned> {
        self.written
    }

    /// Writes it if it is time to.
    pub(super) fn keep(&mut self, now: Instant, learned: &Both<Learned>) -> anyhow::Result<()> {
        if now.since(self.written_at) < BETWEEN {
            return Ok(());
        }
        self.written_at = now;
        self.write(learned)
    }

    /// Writes it, if it is news.
    pub(super) fn write(&mut self, learned: &Both<Learned>) -> anyhow::Result<()> {
        if *learned == self.written {
            return Ok(());
        }
        replace(&self.path, memory::write(learned))?;
        self.written = *learned;
        Ok(())
    }
}

/// Where systemd keeps what outlives a restart of the machine, if the unit has `StateDirectory=`; else where the records are.
fn folder(state_dir: &Path) -> PathBuf {
    std::env::var_os("STATE_DIRECTORY").map_or_else(|| state_dir.to_owned(), PathBuf::from)
}

fn read(path: &Path) -> Result<Both<Learned>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Both::default()),
        file => file.map_err(|error| error.to_string())?,
    };
    let mut text = String::new();
    // Of a longer one no more than shows that it is.
    let most = memory::MOST_BYTES as u64 + 1;
    file.take(most)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    memory::read(&text).map_err(|trouble| trouble.to_string())
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
        assert_eq!((kept.learned(), trouble), (Both::default(), None));
        let mut learned = Both::<Learned>::default();
        learned.egress.hours[20] = Some(Rate::from_kbits_per_sec(4000));
        kept.keep(Instant(BETWEEN.0 - 1), &learned).expect("nothing");
        assert!(!kept.path.exists(), "not yet");
        kept.keep(Instant(BETWEEN.0), &learned).expect("a file");
        assert_eq!(open().0.learned(), learned);
        for broken in [&b"sqm autorate learned 1\nupload"[..], b"\xff\xfe", &[b'x'; 9000]] {
            fs::write(&kept.path, broken).expect("a file");
            let (mut kept, trouble) = open();
            assert!(trouble.is_some_and(|text| text.contains("autorate-wan0.learned")));
            assert_eq!(kept.learned(), Both::default());
            kept.write(&learned).expect("a file");
            assert_eq!(open().0.learned(), learned);
        }
    }
}
