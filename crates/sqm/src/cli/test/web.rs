//! `sqm test --url`: measures with transfers from and to plain URLs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sqm_measure::client::Outcome;
use sqm_measure::client::web::{self, Site};
use sqm_measure::result::Settings;

use super::{Args, for_user};
use sqm_process::failure::Failure;

/// Parallel transfers in each direction, as many as Flent's RRUL test has.
const FLOWS: u32 = 4;

impl Args {
    pub(super) fn measure_web(
        &self,
        title: Option<&str>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Outcome, Failure> {
        let flows = |url: &Option<String>, asked: Option<u32>| match url {
            Some(_) => asked.unwrap_or(FLOWS),
            None => asked.unwrap_or(0),
        };
        let site = Site {
            download: self.url.clone(),
            upload: self.upload_url.clone(),
            reflector: self.reflector.clone(),
            family: self.family(),
            verify: !self.insecure,
            ..Site::default()
        };
        let mut settings = Settings {
            down: flows(&site.download, self.down),
            up: flows(&site.upload, self.up),
            dscp: vec![0],
            ..self.settings()
        };
        self.settle(&mut settings);
        self.supervise(&mut settings, self.quiet, stop, |settings, hooks| {
            web::run(&site, settings, title, hooks)
        })
        .map_err(for_user)
    }
}
