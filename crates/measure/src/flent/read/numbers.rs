//! Numbers in a Flent file.

use serde_json::Value;

/// Larger values are ignored: no test has such times, rates or delays. A choice.
pub(super) const SANE: f64 = 1e9;

pub(super) fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|v| (0.0..SANE).contains(v))
}

/// A one-way delay. It may be negative if the clocks disagree.
pub(super) fn delay(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.abs() < SANE * 1000.0)
}

/// Calls `found` with every number inside `value`, named by its path.
pub(super) fn numbers(
    name: &str,
    value: &Value,
    found: &mut dyn FnMut(&str, f64) -> Result<(), String>,
) -> Result<(), String> {
    match value {
        Value::Number(number) => number.as_f64().map_or(Ok(()), |number| found(name, number)),
        Value::Object(map) => map.iter().try_for_each(|(key, value)| {
            // Recursion is as deep as the JSON, which the parser limits.
            numbers(&format!("{name}::{key}"), value, found)
        }),
        _ => Ok(()),
    }
}

/// Converts a running count to differences.
pub(super) fn differences(samples: &mut [(f64, Option<f64>)]) {
    let mut last = None;
    for (_, value) in samples {
        let now = *value;
        *value = now
            .zip(last)
            .map(|(now, last): (f64, f64)| now - last)
            .or(Some(0.0));
        last = now.or(last);
    }
}

/// Milliseconds, rounded to microseconds.
pub(super) fn round(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}
