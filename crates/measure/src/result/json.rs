//! A result as one line of JSON: the text in a result file.

use std::borrow::Cow;

use serde::Deserialize;

use super::plausibility;
use super::test_result::{FORMAT, TestResult, VERSION};
use crate::foreign::{self, MAX_REASON};
use crate::room::Room;

/// A title keeps at most this many characters. A choice.
pub(crate) const MAX_TITLE: usize = 200;
/// A finding, or the reason why a test ended early, keeps at most this many characters.
const MAX_TEXT: usize = 1000;

impl TestResult {
    /// The result as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a result has no keys but strings and no failing serializers")
    }

    /// Reads a result. The error says, for people, what is wrong with the text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        Self::from_json_within(text, &Room::default())
    }

    pub(crate) fn from_json_within(text: &str, room: &Room) -> Result<Self, String> {
        // Only the head is read first: another version may differ in everything else.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let brief = |e: serde_json::Error| foreign::brief(&e.to_string(), MAX_REASON);
        // By `from_slice`, as everywhere: the deserializers are compiled once for each kind of source.
        let head: Head = serde_json::from_slice(text.as_bytes()).map_err(brief)?;
        if head.format != FORMAT {
            let format = foreign::brief(&head.format, MAX_TITLE);
            return Err(format!("its format is '{format}', not '{FORMAT}'"));
        }
        if head.version != VERSION {
            return Err(format!(
                "its version is {}; this program reads version {VERSION}",
                head.version
            ));
        }
        room.check(text)?;
        let mut result: Self = serde_json::from_slice(text.as_bytes()).map_err(brief)?;
        result.make_printable();
        plausibility::check_samples(&result)?;
        result.redraw();
        plausibility::check_figures(&result)?;
        Ok(result)
    }

    /// Writes out the control characters in all texts: the author of a file can put anything into them.
    fn make_printable(&mut self) {
        let clean = |text: &mut String| {
            if let Cow::Owned(clean) = foreign::printable(text) {
                *text = clean;
            }
        };
        let clean_lines = |text: &mut String| {
            if let Cow::Owned(clean) = foreign::printable_lines(text) {
                *text = clean;
            }
        };
        let meta = &mut self.meta;
        if let Some(title) = &mut meta.title {
            *title = foreign::brief(title, MAX_TITLE);
        }
        for text in [
            &mut meta.test,
            &mut meta.time,
            &mut meta.host,
            &mut meta.local_host,
            &mut meta.local,
            &mut meta.remote,
            &mut meta.program,
            &mut meta.server_program,
            &mut meta.kernel,
            &mut meta.server_kernel,
        ] {
            clean(text);
        }
        meta.settings.congestion.iter_mut().for_each(clean);
        if let Some(reason) = &mut meta.partial {
            *reason = foreign::brief(reason, MAX_TEXT);
        }
        for flow in &mut self.flows {
            clean(&mut flow.name);
            clean(&mut flow.congestion);
            flow.peer.iter_mut().for_each(clean);
        }
        for series in &mut self.probes {
            clean(&mut series.name);
            series.peer.iter_mut().for_each(clean);
        }
        for series in &mut self.evidence {
            clean(&mut series.name);
            clean(&mut series.unit);
        }
        for finding in &mut self.findings {
            finding.code = foreign::brief(&finding.code, MAX_TITLE);
            finding.text = foreign::brief(&finding.text, MAX_TEXT);
        }
        for texts in [&mut meta.parameters, &mut self.snapshots] {
            texts.values_mut().for_each(clean_lines);
            if texts
                .keys()
                .any(|name| matches!(foreign::printable(name), Cow::Owned(_)))
            {
                let all = std::mem::take(texts).into_iter();
                *texts = all
                    .map(|(name, text)| (foreign::printable(&name).into_owned(), text))
                    .collect();
            }
        }
    }
}
