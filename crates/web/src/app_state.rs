//! The state that requests share.

use std::sync::Arc;

use sqm_http::AllowedHosts;

use crate::audit::Audit;
use crate::connection::ConnectionPools;
use crate::history::History;
use crate::hub::Hub;
use crate::interfaces::InterfaceCache;
use crate::live::CounterReader;
use crate::password::{Checker, Password};
use crate::session::Sessions;
use crate::test_jobs::TestJobs;

/// The parts that both servers have.
pub(super) struct Front {
    pub(super) hosts: AllowedHosts,
    pub(super) password: Password,
    pub(super) checker: Checker,
    pub(super) sessions: Sessions,
    pub(super) audit: Audit,
    pub(super) pools: ConnectionPools,
    pub(super) tls: bool,
    /// True if only this machine can reach the server.
    pub(super) is_local: bool,
    pub(super) page: Page,
}

/// The page that the server has.
pub(super) enum Page {
    Router(Arc<AppState>),
    Hub(Hub),
}

impl Page {
    /// The file that answers `/`.
    pub(super) const fn file(&self) -> &'static str {
        match self {
            Self::Router(_) => "/index.html",
            Self::Hub(_) => "/fleet.html",
        }
    }
}

/// The parts of a router's server that every request may use.
pub(super) struct AppState {
    pub(super) daemon: sqm_api::Client,
    pub(super) counters: CounterReader,
    pub(super) interfaces: InterfaceCache,
    pub(super) history: History,
    pub(super) test_jobs: TestJobs,
}
