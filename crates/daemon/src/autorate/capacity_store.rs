//! Keeps the capacities that a controller has learned by hour of day in a file, across restarts of the daemon.

use std::path::{Path, PathBuf};

use sqm_autorate::{CapacityByHour, capacity_by_hour};
use sqm_core::direction::PerDirection;
use sqm_core::units::{Instant, Nanos};

use crate::kept_folder::KeptFolder;

/// The shortest time between two writes, except at the end of the daemon. A choice.
const WRITE_INTERVAL: Nanos = Nanos::from_millis(600_000);
/// The shortest time between two writes to a router's flash memory, which each write wears: a day. A choice: after a power failure
/// the capacities of that day are learned again.
const FLASH_WRITE_INTERVAL: Nanos = Nanos::from_millis(86_400_000);
/// Only root may read the file: learned capacities show when people are at home.
const MODE: u32 = 0o600;

/// The file of one interface.
pub(super) struct CapacityStore {
    path: PathBuf,
    /// The file's content.
    written: PerDirection<CapacityByHour>,
    written_at: Instant,
    /// The shortest time between two writes.
    interval: Nanos,
    /// Why the file cannot be written.
    error: Option<String>,
    /// The error that was reported last.
    reported: Option<String>,
}

impl CapacityStore {
    /// Reads the file of an interface. Also returns an error message if the file cannot be used; it then counts as empty.
    pub(super) fn open(state_dir: &Path, interface: &str, now: Instant) -> (Self, Option<String>) {
        Self::open_in(KeptFolder::find(state_dir), interface, now)
    }

    fn open_in(folder: KeptFolder, interface: &str, now: Instant) -> (Self, Option<String>) {
        let path = folder.path.join(format!("autorate-{interface}.learned"));
        let interval = if folder.is_flash {
            FLASH_WRITE_INTERVAL
        } else {
            WRITE_INTERVAL
        };
        let (written, error) = match read(&path) {
            Ok(learned) => (learned, None),
            Err(error) => {
                // The next write replaces a damaged file. Anything else, such as a directory, is renamed first.
                let aside = match sqm_files::set_aside_irregular(&path) {
                    Ok(Some(aside)) => format!("; it was renamed to {}", aside.display()),
                    _ => String::new(),
                };
                let path = path.display();
                let text = format!("{path} cannot be used: {error}; the learned capacities are lost{aside}");
                (PerDirection::default(), Some(text))
            }
        };
        let store = Self {
            path,
            written,
            written_at: now,
            interval,
            error: None,
            reported: None,
        };
        (store, error)
    }

    /// The content of the file.
    pub(super) const fn learned(&self) -> PerDirection<CapacityByHour> {
        self.written
    }

    /// Writes the file if the last write is long enough ago.
    pub(super) fn write_if_due(&mut self, now: Instant, learned: &PerDirection<CapacityByHour>) {
        if now.since(self.written_at) >= self.interval {
            self.written_at = now;
            self.write(learned);
        }
    }

    /// Writes the file if its content has changed. An error is stored for [`Self::take_message`].
    pub(super) fn write(&mut self, learned: &PerDirection<CapacityByHour>) {
        if *learned == self.written {
            return;
        }
        // OpenWrt has no such folder yet. If it cannot be made, the write fails with the reason.
        if let Some(folder) = self.path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let written = sqm_files::replace(&self.path, MODE, capacity_by_hour::write(learned).as_bytes());
        if written.is_ok() {
            self.written = *learned;
        }
        self.error = written.err().map(|error| error.to_string());
    }

    /// A message for the log if the file cannot be written, or can again, since the last call.
    pub(super) fn take_message(&mut self) -> Option<String> {
        if self.error == self.reported {
            return None;
        }
        self.reported.clone_from(&self.error);
        Some(match &self.error {
            Some(error) => format!("the learned capacities cannot be saved: {error}"),
            None => "the learned capacities are saved again".to_owned(),
        })
    }
}

/// The folder of learned capacities, and how often it may be written: the service's folder for state that outlives a restart of the
/// machine, if systemd names one (`StateDirectory=`); on OpenWrt a folder in flash memory; otherwise the state folder.
fn read(path: &Path) -> Result<PerDirection<CapacityByHour>, String> {
    let limit = capacity_by_hour::MAX_BYTES as u64;
    let Some(bytes) = sqm_files::read_if_there(path, limit).map_err(|error| error.to_string())? else {
        return Ok(PerDirection::default());
    };
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    capacity_by_hour::read(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sqm_core::units::Rate;

    use super::*;

    #[test]
    fn on_openwrt_capacities_are_in_flash_memory_which_is_written_once_a_day_and_only_if_they_changed() {
        let root = tempfile::tempdir().expect("a folder");
        // A fresh OpenWrt has no such folder.
        let flash = KeptFolder {
            path: root.path().join("etc/sqm"),
            is_flash: true,
        };
        let (mut store, error) = CapacityStore::open_in(flash, "wan0", Instant(0));
        assert_eq!(error, None);
        let mut writes = 0;
        for hour in 0..24 * 7 {
            let mut learned = PerDirection::<CapacityByHour>::default();
            learned.upload.hours[hour % 24] = Some(Rate::from_kbits_per_sec(hour as u64 / 48 + 1));
            store.write_if_due(Instant(hour as u64 * 3_600_000_000_000), &learned);
            writes += usize::from(fs::remove_file(&store.path).is_ok());
            assert_eq!(store.take_message(), None);
        }
        assert!((3..=7).contains(&writes), "{writes}");
        let learned = store.learned();
        store.write(&learned);
        assert!(!store.path.exists(), "nothing changed");
    }

    #[test]
    fn capacities_survive_a_restart_and_a_damaged_file_is_reported_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = KeptFolder {
            path: folder.path().to_owned(),
            is_flash: false,
        };
        let open = || CapacityStore::open_in(kept.clone(), "wan0", Instant(0));
        let (mut store, error) = open();
        assert_eq!((store.learned(), error), (PerDirection::default(), None));
        let mut learned = PerDirection::<CapacityByHour>::default();
        learned.upload.hours[20] = Some(Rate::from_kbits_per_sec(4000));
        store.write_if_due(Instant(WRITE_INTERVAL.0 - 1), &learned);
        assert!(!store.path.exists(), "not yet");
        store.write_if_due(Instant(WRITE_INTERVAL.0), &learned);
        assert_eq!(store.take_message(), None);
        assert_eq!(open().0.learned(), learned);
        for broken in [&b"sqm autorate learned 1\nupload"[..], b"\xff\xfe", &[b'x'; 9000]] {
            fs::write(&store.path, broken).expect("a file");
            let (mut store, error) = open();
            assert!(error.is_some_and(|text| text.contains("autorate-wan0.learned")));
            assert_eq!(store.learned(), PerDirection::default());
            store.write(&learned);
            assert_eq!(open().0.learned(), learned);
        }
        // A directory in place of the file, at the start and while the daemon runs.
        fs::remove_file(&store.path).expect("a file");
        fs::create_dir(&store.path).expect("a directory");
        let (mut store, error) = open();
        assert!(error.is_some_and(|text| text.contains(".learned.damaged")));
        store.write(&learned);
        assert_eq!((open().0.learned(), store.take_message()), (learned, None));
        fs::remove_file(&store.path).expect("a file");
        fs::create_dir(&store.path).expect("a directory");
        store.write(&PerDirection::default());
        assert!(
            store
                .take_message()
                .is_some_and(|text| text.contains("is a directory"))
        );
        assert_eq!(store.take_message(), None, "only once");
    }
}
