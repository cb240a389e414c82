//! The routes of the API.

use hyper::Method;

/// A request that the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The metrics, as OpenMetrics text.
    Metrics,
    /// [`Status`](crate::status::Status).
    Status,
    /// The plans in force, as `sqm plan --format json` prints them.
    Plan,
    /// The log as server-sent events: [`LogEntry`](crate::journal::LogEntry).
    Events,
    /// [`Apply`](crate::configuration::Apply) the configuration.
    Apply,
    /// [`Pause`](crate::pause::Pause) the shaping of an interface while the connection is open.
    Pause,
    /// [`ConfigurationFile`](crate::configuration::ConfigurationFile).
    Configuration,
    /// [`Configure`](crate::configuration::Configure): write and apply a text.
    Configure,
    /// Confirm the change that waits for it.
    Confirm,
    /// Roll the unconfirmed change back.
    Revert,
    /// The search for rates: [`Search`](crate::tune::Search).
    Tune,
    /// Start a search: [`StartTune`](crate::tune::StartTune).
    StartTune,
    /// Stop the search.
    StopTune,
    /// A picture of the last search.
    TunePlot,
    /// Run the [`Doctor`](crate::doctor::Doctor).
    Doctor,
    /// The output of `sqm bugreport`.
    Report,
}

/// Method, path and name of every route.
pub const ROUTES: [(Method, &str, Route); 16] = [
    (Method::GET, "/metrics", Route::Metrics),
    (Method::GET, "/v1/status", Route::Status),
    (Method::GET, "/v1/plan", Route::Plan),
    (Method::GET, "/v1/events", Route::Events),
    (Method::POST, "/v1/apply", Route::Apply),
    (Method::POST, "/v1/pause", Route::Pause),
    (Method::GET, "/v1/configuration", Route::Configuration),
    (Method::PUT, "/v1/configuration", Route::Configure),
    (Method::POST, "/v1/configuration/confirm", Route::Confirm),
    (Method::POST, "/v1/configuration/revert", Route::Revert),
    (Method::GET, "/v1/tune", Route::Tune),
    (Method::POST, "/v1/tune", Route::StartTune),
    (Method::DELETE, "/v1/tune", Route::StopTune),
    (Method::GET, "/v1/tune/plots/{plot}.svg", Route::TunePlot),
    (Method::POST, "/v1/doctor", Route::Doctor),
    (Method::GET, "/v1/report", Route::Report),
];

impl Route {
    /// `true` if only root, the daemon's own user and the user of `--admin-user` may send it: it changes something, or its
    /// answer is not for every user.
    pub const fn is_for_admins(self) -> bool {
        match self {
            Self::Metrics
            | Self::Status
            | Self::Plan
            | Self::Events
            | Self::Configuration
            | Self::Tune
            | Self::TunePlot => false,
            Self::Apply
            | Self::Pause
            | Self::Configure
            | Self::Confirm
            | Self::Revert
            | Self::StartTune
            | Self::StopTune
            | Self::Doctor
            | Self::Report => true,
        }
    }

    /// The method and the path.
    pub(crate) fn request(self) -> (Method, &'static str) {
        let row = ROUTES.into_iter().find(|(_, _, route)| *route == self);
        let (method, path, _) = row.expect("every route is in the table");
        (method, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_one_row() {
        for (method, path, route) in ROUTES {
            assert_eq!(route.request(), (method, path));
        }
    }
}
