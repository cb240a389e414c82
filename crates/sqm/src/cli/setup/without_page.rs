//! The page of a program without the feature `full`: there is none to set up.

use std::path::Path;

use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_process::failure::Failure;

use super::told::Told;

/// The flags of the page: none.
#[derive(clap::Args)]
pub(super) struct PageArgs {}

/// The decision on the page: there is none.
pub(super) struct Page;

impl PageArgs {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with a page")]
    pub(super) fn decide(&self, _config: &Path, _is_dialogue: bool) -> Result<Page, Failure> {
        Ok(Page)
    }
}

#[expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "as with a page"
)]
pub(super) fn set_up(
    _page: Page,
    _socket: &mut Socket,
    _links: &[Link],
    _shaped: &str,
    _told: Told,
) -> Result<Option<String>, Failure> {
    Ok(None)
}
