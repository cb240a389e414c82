//! The state that all requests share.

use sqm_http::AllowedHosts;

use crate::audit::Audit;
use crate::guest::Rooms;
use crate::history::History;
use crate::live::Watch;
use crate::password::{Checker, Password};
use crate::runs::Runs;
use crate::session::Sessions;
use crate::status::Memory;
use crate::upstream::Daemon;

/// The parts of the server that every request may use.
pub(super) struct AppState {
    pub(super) hosts: AllowedHosts,
    pub(super) password: Password,
    pub(super) checker: Checker,
    pub(super) sessions: Sessions,
    pub(super) audit: Audit,
    pub(super) daemon: Daemon,
    pub(super) watch: Watch,
    pub(super) memory: Memory,
    pub(super) history: History,
    pub(super) runs: Runs,
    pub(super) rooms: Rooms,
    pub(super) tls: bool,
    /// Only this machine reaches the server.
    pub(super) is_local: bool,
}
