//! The mailbox in which the autorate threads leave their status and the rates that they want, for the main loop and the API.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use sqm_api::status::AutorateStatus;
use sqm_configuration::rate_override::RateOverride;

/// The latest status and the latest wanted rates of each interface.
#[derive(Debug, Default)]
pub(crate) struct RateMailbox(Mutex<BTreeMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    status: AutorateStatus,
    /// Rates that the main loop has not taken yet.
    wanted: Option<RateOverride>,
}

impl RateMailbox {
    /// Replaces the status. `wanted` replaces rates that have not been taken yet; `None` keeps them.
    pub(super) fn put(&self, interface: &str, status: AutorateStatus, wanted: Option<RateOverride>) {
        let mut entries = self.lock();
        let before = entries.remove(interface).and_then(|entry| entry.wanted);
        let wanted = wanted.or(before);
        entries.insert(interface.to_owned(), Entry { status, wanted });
    }

    /// Removes the entry of an interface.
    pub(super) fn remove(&self, interface: &str) {
        self.lock().remove(interface);
    }

    /// Replaces the entry of an interface by an error. Rates that have not been taken yet are dropped.
    pub(super) fn put_error(&self, interface: &str, error: String) {
        let status = AutorateStatus {
            trouble: Some(error),
            ..AutorateStatus::default()
        };
        let entry = Entry { status, wanted: None };
        self.lock().insert(interface.to_owned(), entry);
    }

    /// Takes the rates that are wanted since the last call.
    pub(crate) fn take_wanted(&self) -> Vec<(String, RateOverride)> {
        let mut entries = self.lock();
        let wanted = entries
            .iter_mut()
            .filter_map(|(interface, entry)| Some((interface.clone(), entry.wanted.take()?)));
        wanted.collect()
    }

    /// The status of an interface, if it has a controller.
    pub(crate) fn status(&self, interface: &str) -> Option<AutorateStatus> {
        self.lock().get(interface).map(|entry| entry.status.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}
