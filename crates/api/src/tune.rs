//! The search for rates (`sqm tune`), which the daemon runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqm_plan::OptionValue;

/// The body of `POST /v1/tune`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartTune {
    /// The machine that runs `sqm serve`, or a URL.
    pub host: String,
    /// The port of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The server is one of the IETF's responsiveness test. Not with a URL.
    #[serde(default)]
    pub rpm: bool,
    /// With the URL of a file: a URL that takes uploads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_url: Option<String>,
    /// With `rpm` or a URL: accept any certificate.
    #[serde(default)]
    pub insecure: bool,
    /// The interface; needed if the configuration has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The latency that load may add, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ms: Option<f64>,
    /// The secret of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// The search that runs, or the last one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Search {
    /// Its state: it runs, or it has ended in some way.
    pub state: SearchState,
    /// Its interface, as the request or the result names it.
    pub interface: Option<String>,
    /// Its server.
    pub host: Option<String>,
    /// The requested target; none is the default of `sqm tune`.
    pub target_ms: Option<f64>,
    /// When it began, milliseconds since 1970, UTC.
    pub started_unix_ms: Option<u64>,
    /// Its steps so far.
    pub steps: Vec<TuneStep>,
    /// Its result.
    pub result: Option<TuneResult>,
    /// The names of its pictures.
    pub plots: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The state of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchState {
    /// There was none since the daemon started.
    #[default]
    None,
    /// It runs.
    Running,
    /// It has a result.
    Done,
    /// It ended with an error.
    Failed,
    /// It was stopped by a request.
    Stopped,
}

/// A step of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TuneStep {
    /// When the step ended, milliseconds since 1970, UTC.
    pub unix_ms: u64,
    /// A sentence for people.
    pub text: String,
}

/// The output of `sqm tune --json`. The daemon and the page's server pass fields that they do not use on unchanged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TuneResult {
    /// The interface.
    pub interface: String,
    /// The download rate for the configuration, kbit/s; 0 leaves it unshaped.
    pub download_kbit: u64,
    /// The upload rate for the configuration, kbit/s.
    pub upload_kbit: u64,
    /// How the line frames packets, if that was measured.
    pub overhead: Option<TuneOverhead>,
    /// All other fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The framing of the line, as `sqm tune` measured it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TuneOverhead {
    /// The options that the found rates require.
    pub options: Vec<OptionValue>,
    /// All other fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_a_result_that_have_no_name_here_are_passed_on() {
        let output = json!({
            "interface": "wan0",
            "target_ms": 5.0,
            "download_kbit": 91_200,
            "upload_kbit": 0,
            "overhead": {"advice": ["cells"], "fit": {"bytes": 31.25}, "options": [["linklayer", "atm"]]},
            "verified": {"idle_ms": 14.1, "added_p95_ms": 0.1},
            "warning": null,
        });
        let result: TuneResult = serde_json::from_value(output.clone()).unwrap();
        assert_eq!(result.overhead.as_ref().unwrap().options[0].text(), "atm");
        assert_eq!(serde_json::to_value(result).unwrap(), output);
    }
}
