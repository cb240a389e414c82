//! The query string of a request.

use super::problem::Problem;

/// The parameters of a request.
pub(super) struct Query<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Query<'a> {
    /// Parses a query string. Parameters that are not in `known` are an error, so that none is ignored silently.
    pub(super) fn of(text: Option<&'a str>, known: &[&str]) -> Result<Self, Problem> {
        let pairs: Vec<(&str, &str)> = text
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        for (n, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(name) {
                return Err(Problem::bad_request("unknown parameter"));
            }
            if pairs[..n].iter().any(|(other, _)| other == name) {
                return Err(Problem::bad_request(format!("{name} is given twice")));
            }
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| *value)
    }

    /// The whole number from `least` to `most` of a parameter, or `default`.
    pub(super) fn number(&self, name: &str, least: u32, most: u32, default: u32) -> Result<u32, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|n| is_plain && (least..=most).contains(n));
        number.ok_or_else(|| Problem::bad_request(format!("{name} is a whole number from {least} to {most}")))
    }
}
