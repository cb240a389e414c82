//! The parts of a Flent file that are read, and helpers to parse them.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::room::{Few, each};

/// The file. Its parts are parsed when they are needed.
#[derive(Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow)]
    pub(super) metadata: Few<&'a RawValue>,
    #[serde(borrow)]
    pub(super) version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) x_values: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) results: Few<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) raw_values: Few<&'a RawValue>,
}

/// A sample of a flow or of probes. Other kinds of series have other members.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Raw {
    pub(super) t: Option<f64>,
    pub(super) val: Option<f64>,
    pub(super) dur: Option<f64>,
    pub(super) seq: Option<f64>,
    pub(super) size: Option<f64>,
    pub(super) lost: Option<bool>,
    pub(super) lost_dir: Option<String>,
    pub(super) owd_up: Option<f64>,
    pub(super) owd_down: Option<f64>,
    pub(super) tcp_cwnd: Option<f64>,
    pub(super) tcp_rtt: Option<f64>,
    pub(super) tcp_rtt_var: Option<f64>,
    pub(super) tcp_pacing_rate: Option<f64>,
    pub(super) tcp_delivery_rate: Option<f64>,
}

/// Flent's metadata of a series.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SeriesMeta<'a> {
    #[serde(rename = "COMMAND")]
    pub(super) command: Option<String>,
    #[serde(rename = "CONG_CONTROL")]
    pub(super) congestion: Option<String>,
    /// A number or a text, as the measuring tool printed it.
    #[serde(rename = "TCP_MSS", borrow)]
    pub(super) mss: Option<&'a RawValue>,
    #[serde(rename = "UNITS")]
    pub(super) units: Option<String>,
    /// Where the samples were in version 1.
    #[serde(rename = "RAW_VALUES", borrow)]
    pub(super) raw_values: Option<&'a RawValue>,
}

pub(super) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue, name: &str) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|e| format!("{name}: {e}"))
}

/// A value that is neither a list nor an object.
pub(super) fn small(raw: &RawValue) -> Option<Value> {
    let text = raw.get();
    if text.starts_with(['[', '{']) {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Passes every item of a list to `take`.
pub(super) fn each_of<'a, T: Deserialize<'a>>(
    raw: &'a RawValue,
    name: &str,
    take: &mut dyn FnMut(T) -> Result<(), String>,
) -> Result<(), String> {
    let mut items = serde_json::Deserializer::from_str(raw.get());
    each(&mut items, take).map_err(|e| format!("{name}: {e}"))
}
