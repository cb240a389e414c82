//! The state that all requests share.

use sqm_http::AllowedHosts;

use crate::audit::Audit;
use crate::connection::ConnectionPools;
use crate::history::History;
use crate::interfaces::InterfaceCache;
use crate::live::CounterReader;
use crate::password::{Checker, Password};
use crate::session::Sessions;
use crate::test_jobs::TestJobs;

/// The parts of the server that every request may use.
pub(super) struct AppState {
    pub(super) hosts: AllowedHosts,
    pub(super) password: Password,
    pub(super) checker: Checker,
    pub(super) sessions: Sessions,
    pub(super) audit: Audit,
    pub(super) daemon: sqm_api::Client,
    pub(super) counters: CounterReader,
    pub(super) interfaces: InterfaceCache,
    pub(super) history: History,
    pub(super) test_jobs: TestJobs,
    pub(super) pools: ConnectionPools,
    pub(super) tls: bool,
    /// True if only this machine can reach the server.
    pub(super) is_local: bool,
}
