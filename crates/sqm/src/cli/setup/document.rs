//! The document of `sqm setup --json`.

use serde::Serialize;

use super::found::Measured;
use super::tested::Graded;

/// The result of setup; with `--dry-run`, the result that it would have.
#[derive(Serialize)]
pub(super) struct SetUp<'a> {
    pub(super) file: String,
    /// True if the file has changed.
    pub(super) is_written: bool,
    /// The text of the file, with `--dry-run`.
    pub(super) text: Option<&'a str>,
    pub(super) interface: &'a str,
    pub(super) link: &'a str,
    pub(super) download_kbit: u64,
    pub(super) upload_kbit: u64,
    pub(super) overhead: Overhead,
    /// True if the kernel holds what is configured.
    pub(super) is_verified: bool,
    /// The grade without the new shaping.
    pub(super) before: Option<Graded>,
    pub(super) after: Option<Graded>,
    pub(super) service: Option<Service>,
    pub(super) page_url: Option<String>,
}

/// The bytes that each packet takes on the line beyond IP.
#[derive(Serialize)]
pub(super) struct Overhead {
    /// As the configuration counts them.
    pub(super) counted_bytes: i32,
    #[serde(flatten)]
    pub(super) measured: Option<Measured>,
}

/// The start of the service at boot, if setup has changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Service {
    Enabled,
    Failed,
}
