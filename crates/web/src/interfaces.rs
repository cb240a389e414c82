//! The interfaces that the daemon keeps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqm_api::Client;
use sqm_api::configuration::ConfigurationFile;
use sqm_api::status::{State, Status};
use sqm_configuration::Draft;
use sqm_plan::OptionValue;
use sqm_plan::settings::Facing;

/// The daemon is asked again after this long. Our choice: less than the second between two rows of the history.
const FRESH: Duration = Duration::from_millis(900);

/// An interface, as the daemon reports it, with the state of its device.
#[derive(Clone, Debug)]
pub(super) struct InterfaceInfo {
    pub(super) interface: String,
    pub(super) state: State,
    pub(super) up: bool,
    pub(super) carrier: bool,
    /// True if the download is egress of the device (`option facing lan`).
    pub(super) faces_lan: bool,
}

/// The interfaces that the daemon last reported, so that several browsers cause one request.
#[derive(Default)]
pub(super) struct InterfaceCache(tokio::sync::Mutex<Option<(Instant, Arc<[InterfaceInfo]>)>>);

impl InterfaceCache {
    /// The interfaces that the daemon keeps, at most [`FRESH`] old; none if there is no daemon.
    pub(super) async fn known(&self, daemon: &Client) -> Arc<[InterfaceInfo]> {
        // The lock is held during the request: all callers wait for one answer.
        let mut cache = self.0.lock().await;
        if let Some((at, known)) = &*cache
            && at.elapsed() < FRESH
        {
            return Arc::clone(known);
        }
        let status = daemon.status_without_queues().await.ok();
        let file = match status {
            Some(_) => daemon.configuration().await.ok(),
            None => None,
        };
        let known: Arc<[InterfaceInfo]> = match status {
            None => Arc::from([]),
            Some(status) => {
                let known = tokio::task::spawn_blocking(move || interfaces_of(&status, file.as_ref()));
                known.await.unwrap_or_default().into()
            }
        };
        *cache = Some((Instant::now(), Arc::clone(&known)));
        known
    }
}

/// The interfaces in the answers of the daemon.
pub(super) fn interfaces_of(status: &Status, file: Option<&ConfigurationFile>) -> Vec<InterfaceInfo> {
    // Also from a text with errors: the daemon then keeps the configuration that it had.
    let draft = file.and_then(|file| Draft::of(file.text.as_bytes()).ok());
    let sections = draft.iter().flat_map(Draft::sections);
    let lan = OptionValue::Facing(Facing::Lan);
    let facing_lan: BTreeSet<&str> = sections
        .filter(|section| {
            let facing = section.value(lan.name());
            facing.is_some_and(|facing| lan.is_written_as(facing))
        })
        .filter_map(|section| section.value("interface"))
        .collect();
    status
        .interfaces
        .iter()
        .map(|interface| InterfaceInfo {
            interface: interface.interface.clone(),
            state: interface.state,
            up: false,
            carrier: false,
            faces_lan: facing_lan.contains(interface.interface.as_str()),
        })
        .collect()
}
