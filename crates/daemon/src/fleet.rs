//! The router's part in a fleet: a thread that takes signed documents from a store, tries them as changes that have to be confirmed, and
//! reports what came of them.
//!
//! `sqm_fleet::agent` decides. This module has the files, the clock and the network for it, and asks the main loop for every change, as
//! a client of the API would. If the thread ends, the line stays shaped as it is.

mod changes;
mod exchange;
mod memory_file;
mod observer;
mod quiet_test;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use sqm_fleet::agent::{Agent, Identity};
use sqm_fleet::nats::Options;
use sqm_fleet::signed::PublicKey;

use crate::kept_folder::KeptFolder;
use crate::shared::Shared;
use memory_file::MemoryFile;

/// The longest credentials file, bytes. A choice: one has about a thousand.
const MAX_CREDENTIALS: u64 = 64 * 1024;

/// The fleet that the router belongs to.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The servers, such as `tls://hub.example.net:4222`; several with commas between them.
    pub url: String,
    /// The router's credentials. They say which router it is.
    pub credentials: PathBuf,
    /// The public key that signs the documents.
    pub key: String,
    /// The certificate authority of the servers, PEM; `None`: those of the system.
    pub certificate_authority: Option<PathBuf>,
}

/// Starts the thread.
///
/// # Errors
/// Options that cannot work. That the server does not answer is none: the thread tries for as long as it lives.
pub(super) fn start(options: FleetOptions, shared: Arc<Shared>) -> anyhow::Result<()> {
    let key = PublicKey::parse(&options.key).context("option fleet_key")?;
    let credentials =
        sqm_files::read(&options.credentials, MAX_CREDENTIALS).context("option fleet_credentials")?;
    let router = sqm_fleet::name_in(&String::from_utf8_lossy(&credentials)).ok_or_else(|| {
        anyhow!(
            "option fleet_credentials: {} is no credentials file of a router ('sqm fleet enroll' makes one)",
            options.credentials.display()
        )
    })?;
    let store = Options {
        url: options.url,
        credentials: Some(options.credentials),
        certificate_authority: options.certificate_authority,
        name: router.to_string(),
    };
    sqm_fleet::nats::check(&store).context("option fleet_url")?;
    let (file, memory) = MemoryFile::open(&KeptFolder::find(&shared.state_dir), &shared.journal);
    let agent = Agent::new(Identity { router, key }, memory);
    std::thread::Builder::new()
        .name("fleet".into())
        .spawn(move || exchange::run(&store, agent, file, &shared))
        .context("cannot start the thread of the fleet")?;
    Ok(())
}
