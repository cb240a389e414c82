//! The routes of the API (docs/openapi.yaml): which requests there are, who may send them, and which parameters they take.

use hyper::Method;
use sqm_http::Row;

/// The path of the API, to which the paths in [`ROUTES`] are relative.
pub(super) const API: &str = "/api/v1/";

/// A request that the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Read(Read),
    Change(Change),
}

/// A request that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Session,
    Status,
    Live,
    History,
    Events,
    Options,
    Links,
    Interfaces,
    Config,
    Tests,
    Test,
    TestLive,
    TestFile,
    TestPlot,
    Comparison,
    ComparisonPlot,
    Tune,
    TuneLive,
    TunePlot,
    Doctor,
    Report,
    Audit,
    Fleet,
    FleetRouter,
    FleetRollOut,
    Description,
}

/// A request that changes something. It must carry the token, which only our own page knows, and the audit log records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    LogIn,
    LogOut,
    PutConfig,
    CheckConfig,
    ReadRates,
    ConfirmConfig,
    RevertConfig,
    StartTest,
    DeleteTest,
    StopTest,
    StartTune,
    StopTune,
    AcceptTune,
    Fix,
}

/// Method, path and route of every request.
pub(super) const ROUTES: [Row<Route>; 40] = [
    (Method::GET, "session", Route::Read(Read::Session)),
    (Method::POST, "session", Route::Change(Change::LogIn)),
    (Method::DELETE, "session", Route::Change(Change::LogOut)),
    (Method::GET, "status", Route::Read(Read::Status)),
    (Method::GET, "live", Route::Read(Read::Live)),
    (Method::GET, "history", Route::Read(Read::History)),
    (Method::GET, "events", Route::Read(Read::Events)),
    (Method::GET, "options", Route::Read(Read::Options)),
    (Method::GET, "links", Route::Read(Read::Links)),
    (Method::GET, "interfaces", Route::Read(Read::Interfaces)),
    (Method::GET, "config", Route::Read(Read::Config)),
    (Method::PUT, "config", Route::Change(Change::PutConfig)),
    (Method::POST, "config/check", Route::Change(Change::CheckConfig)),
    (Method::POST, "config/rates", Route::Change(Change::ReadRates)),
    (
        Method::POST,
        "config/confirm",
        Route::Change(Change::ConfirmConfig),
    ),
    (Method::POST, "config/revert", Route::Change(Change::RevertConfig)),
    (Method::GET, "tests", Route::Read(Read::Tests)),
    (Method::POST, "tests", Route::Change(Change::StartTest)),
    (Method::GET, "tests/{id}", Route::Read(Read::Test)),
    (Method::DELETE, "tests/{id}", Route::Change(Change::DeleteTest)),
    (Method::POST, "tests/{id}/stop", Route::Change(Change::StopTest)),
    (Method::GET, "tests/{id}/live", Route::Read(Read::TestLive)),
    (
        Method::GET,
        "tests/{id}/result.flent.gz",
        Route::Read(Read::TestFile),
    ),
    (
        Method::GET,
        "tests/{id}/plots/{plot}.svg",
        Route::Read(Read::TestPlot),
    ),
    (Method::GET, "compare", Route::Read(Read::Comparison)),
    (
        Method::GET,
        "compare/{plot}.svg",
        Route::Read(Read::ComparisonPlot),
    ),
    (Method::GET, "tune", Route::Read(Read::Tune)),
    (Method::POST, "tune", Route::Change(Change::StartTune)),
    (Method::POST, "tune/stop", Route::Change(Change::StopTune)),
    (Method::POST, "tune/accept", Route::Change(Change::AcceptTune)),
    (Method::GET, "tune/live", Route::Read(Read::TuneLive)),
    (Method::GET, "tune/plots/{plot}.svg", Route::Read(Read::TunePlot)),
    (Method::GET, "doctor", Route::Read(Read::Doctor)),
    (Method::POST, "doctor/fix", Route::Change(Change::Fix)),
    (Method::GET, "report", Route::Read(Read::Report)),
    (Method::GET, "audit", Route::Read(Read::Audit)),
    (Method::GET, "fleet", Route::Read(Read::Fleet)),
    (Method::GET, "fleet/routers/{id}", Route::Read(Read::FleetRouter)),
    (
        Method::GET,
        "fleet/roll-outs/{id}",
        Route::Read(Read::FleetRollOut),
    ),
    (Method::GET, "openapi.yaml", Route::Read(Read::Description)),
];

impl Read {
    /// True if users who are not logged in may send it.
    pub(super) const fn is_for_readers(self) -> bool {
        !matches!(
            self,
            Self::Report | Self::Audit | Self::Fleet | Self::FleetRouter | Self::FleetRollOut
        )
    }

    /// The names of its parameters.
    pub(super) const fn query(self) -> &'static [&'static str] {
        match self {
            Self::Live => &["hz"],
            Self::History => &["seconds", "points"],
            Self::Comparison => &["ids"],
            Self::ComparisonPlot => &["ids", "sheet"],
            Self::TestPlot | Self::TunePlot => &["sheet"],
            Self::Audit => &["last"],
            _ => &[],
        }
    }

    /// True if a child process answers it, here or at the daemon.
    pub(super) const fn starts_child(self) -> bool {
        matches!(
            self,
            Self::TestPlot | Self::Comparison | Self::ComparisonPlot | Self::Doctor | Self::Report
        )
    }
}

impl Change {
    /// The name in the audit log.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LogIn => "log-in",
            Self::LogOut => "log-out",
            Self::PutConfig => "config",
            Self::CheckConfig => "check",
            Self::ReadRates => "rates",
            Self::ConfirmConfig => "confirm",
            Self::RevertConfig => "revert",
            Self::StartTest => "test",
            Self::DeleteTest => "delete-test",
            Self::StopTest => "stop-test",
            Self::StartTune => "tune",
            Self::StopTune => "stop-tune",
            Self::AcceptTune => "accept-tune",
            Self::Fix => "fix",
        }
    }

    /// True if it changes nothing. Such a request is not in the audit log.
    pub(super) const fn is_check(self) -> bool {
        matches!(self, Self::CheckConfig | Self::ReadRates)
    }

    /// True if users who are not logged in may send it.
    pub(super) const fn is_for_readers(self) -> bool {
        matches!(self, Self::LogIn | Self::LogOut)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// docs/openapi.yaml, line by line: paths are indented by two spaces, their methods by four.
    #[test]
    fn the_table_has_every_route_of_the_description_and_no_other() {
        let mut path = "";
        let mut described = BTreeSet::new();
        for line in crate::handler::DESCRIPTION.lines() {
            if let Some(found) = line.strip_prefix("  /").and_then(|rest| rest.strip_suffix(':')) {
                path = found;
            } else if let Some(method) = line.strip_prefix("    ").and_then(|rest| rest.strip_suffix(':'))
                && ["get", "post", "put", "delete"].contains(&method)
            {
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let table = ROUTES.map(|(method, path, _)| format!("{method} {path}"));
        assert_eq!(BTreeSet::from(table), described);
    }
}
