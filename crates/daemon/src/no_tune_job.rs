//! The search for rates in a program for routers, which does not have `sqm tune`.

use std::path::PathBuf;
use std::sync::Arc;

use sqm_api::tune::{Search, StartTune};

use super::journal::Journal;

pub(super) struct TuneJob;

impl TuneJob {
    pub(super) fn new(_: PathBuf, _: PathBuf, _: Arc<Journal>) -> Self {
        Self
    }

    pub(super) fn search(&self) -> Search {
        Search::default()
    }

    pub(super) fn start(self: &Arc<Self>, _: StartTune) -> anyhow::Result<Option<Search>> {
        anyhow::bail!(
            "this program for routers has no search for rates: measure them with 'sqm test', or run the full program"
        )
    }

    pub(super) fn stop(&self) -> bool {
        false
    }

    pub(super) fn picture(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    pub(super) fn shut_down(&self) -> bool {
        true
    }
}
