//! The server that the line is measured with: tests before and after, and the search for rates.
//!
//! Each runs as a child process in the foreground: Ctrl-C reaches it, and it shows its progress itself. In the program for routers
//! the test runs in this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
#[cfg(any(feature = "full", not(feature = "router")))]
use anyhow::anyhow;
use serde_json::Value;
#[cfg(any(feature = "full", not(feature = "router")))]
use sqm_measure::result::TestResult;
use sqm_process::child::{self, PROGRAM};
use sqm_process::failure::Failure;

use super::HAS_SEARCH;
use super::answers::ask;
use super::tested::Tested;

/// The server, and how it is used.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Server {
    /// Measure with this machine, which runs `sqm serve` beyond the line, or with the URL of a large file: tests before and
    /// after, and the search of `sqm tune` for the best rates
    #[arg(long, value_name = "HOST|URL")]
    server: Option<String>,
    /// The server speaks the protocol of draft-ietf-ippm-responsiveness, as networkQuality does
    #[arg(long, requires = "server")]
    rpm: bool,
    /// With the URL of a file: a URL that takes a POST of 25 MB
    #[arg(long, value_name = "URL", requires = "server")]
    upload_url: Option<String>,
    /// Port of the server
    #[arg(long, requires = "server")]
    port: Option<u16>,
    /// File whose first line is the server's secret
    #[arg(long, value_name = "FILE", requires = "server")]
    secret: Option<PathBuf>,
    /// With --rpm or a URL: do not verify the server's certificate
    #[arg(long, requires = "server")]
    insecure: bool,
    /// Do not measure: keep the rates that were given
    #[arg(long, conflicts_with = "server")]
    no_server: bool,
}

/// The files that a search needs.
pub(super) struct Files<'a> {
    pub(super) config: &'a Path,
    pub(super) state_dir: &'a Path,
}

impl Server {
    /// True if a server was named.
    pub(super) const fn is_there(&self) -> bool {
        self.server.is_some()
    }

    /// The name of the server.
    pub(super) fn name(&self) -> &str {
        self.server.as_deref().unwrap_or_default()
    }

    /// Asks for a server, unless it was given or refused. Enter leaves it out.
    pub(super) fn or_ask(&self) -> Result<Self, Failure> {
        if self.is_there() || self.no_server {
            return Ok(self.clone());
        }
        outln!("To measure the line and find its best rates, sqm needs a server beyond it:");
        outln!("  the name of a machine that runs 'sqm serve' (finds rates and overhead)");
        if HAS_SEARCH {
            outln!("  the URL of a file that takes the line 15 s or more (finds the download only)");
            outln!("  rpm and the name of a responsiveness server, as networkQuality uses (finds the rates)");
        }
        ask(
            "Server (Enter: do not measure)",
            None,
            "--server or --no-server",
            |answer| {
                let (rpm, name) = match answer.split_once(' ') {
                    Some((word, name)) if word.eq_ignore_ascii_case("rpm") => (true, name.trim()),
                    _ => (false, answer),
                };
                if name.contains(char::is_whitespace) {
                    return Err("type one name, a URL, or rpm and a name".to_owned());
                }
                Ok(Self {
                    server: (!name.is_empty()).then(|| name.to_owned()),
                    rpm,
                    ..Self::default()
                })
            },
        )
    }

    fn is_url(&self) -> bool {
        let name = self.name();
        name.starts_with("https://") || name.starts_with("http://")
    }

    /// Measures the line as it is now.
    pub(super) fn test(&self) -> Result<Tested, Failure> {
        let mut words = match self.rpm {
            true => words(&["test", "--rpm", "--json", "-"]),
            false => words(&["test", "--json", "-", "--idle", "3s", "--after", "0"]),
        };
        if self.rpm {
            words.extend(self.insecure.then(|| "--insecure".into()));
        }
        if self.is_url() {
            words.extend([OsString::from("--url"), self.name().into()]);
            words.extend(
                self.upload_url
                    .iter()
                    .map(|url| format!("--upload-url={url}").into()),
            );
            words.extend(self.insecure.then(|| "--insecure".into()));
        } else {
            words.extend(self.port.map(|port| format!("--port={port}").into()));
            words.extend(self.secret_word());
            words.extend([OsString::from("--"), self.name().into()]);
        }
        self.measure(words)
    }

    /// Runs `sqm test` with these words.
    #[cfg(any(feature = "full", not(feature = "router")))]
    fn measure(&self, words: Vec<OsString>) -> Result<Tested, Failure> {
        let (status, output) = child::foreground(PROGRAM, words).context("cannot start the test")?;
        if !status.success() {
            return Err(Failure::Failed(anyhow!("the test with {} failed", self.name())));
        }
        #[cfg(feature = "full")]
        if self.rpm {
            let report = serde_json::from_slice(&output).context("the test gave no report")?;
            return Ok(Tested::Responsiveness(Box::new(report)));
        }
        TestResult::from_bytes(&output)
            .map(|result| Tested::Result(Box::new(result)))
            .map_err(|error| Failure::Failed(anyhow!("the test gave no result: {error}")))
    }

    /// Measures as `sqm test` does with these words, in this process: the program for routers has no reader of results.
    #[cfg(all(feature = "router", not(feature = "full")))]
    fn measure(&self, words: Vec<OsString>) -> Result<Tested, Failure> {
        crate::cli::test::measured(words).map(|result| Tested::Result(Box::new(result)))
    }

    /// Searches the best rates and writes nothing. `None` if none were found; the reason is on standard error. `sets_overhead` is true if the
    /// rates shall be found with the measured overhead.
    pub(super) fn tune(
        &self,
        interface: &str,
        files: &Files<'_>,
        sets_overhead: bool,
    ) -> Result<Option<Value>, Failure> {
        let mut words = words(&["tune", "--json", "--config"]);
        words.extend([files.config.into(), "--state-dir".into(), files.state_dir.into()]);
        words.extend([OsString::from("--server"), self.name().into()]);
        let measures_overhead = !self.rpm && !self.is_url();
        words.extend((sets_overhead && measures_overhead).then(|| "--set-overhead".into()));
        words.extend(self.rpm.then(|| "--rpm".into()));
        words.extend(
            self.upload_url
                .iter()
                .map(|url| format!("--upload-url={url}").into()),
        );
        words.extend(self.port.map(|port| format!("--port={port}").into()));
        words.extend(self.secret_word());
        words.extend(self.insecure.then(|| "--insecure".into()));
        words.extend([OsString::from("--"), interface.into()]);
        let (status, output) = child::foreground(PROGRAM, words).context("cannot start the search")?;
        if !status.success() {
            return Ok(None);
        }
        let report = serde_json::from_slice(&output).context("the search gave no report")?;
        Ok(Some(report))
    }

    fn secret_word(&self) -> Option<OsString> {
        let file = self.secret.as_ref()?;
        let mut word = OsString::from("--secret=");
        word.push(file);
        Some(word)
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}
