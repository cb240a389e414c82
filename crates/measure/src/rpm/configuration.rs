//! The configuration of a server: the URLs of its transfers.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio_rustls::TlsConnector;

use super::connection::{connect, fetch, tls};
use crate::Error;
use crate::client::web::Site;
use crate::foreign::{self, MAX_REASON};
use crate::http::{Place, Tasks, bracketed, shown};

/// Longest time to read the configuration of the server and to probe the idle line, together.
pub(super) const SETUP: Duration = Duration::from_secs(8);
/// HTTP/2 receive window of a connection that expects a small answer, bytes.
pub(super) const SMALL_WINDOW: u32 = 128 << 10;
/// The largest configuration that is read, in bytes.
pub(super) const MAX_CONFIGURATION: usize = 64 << 10;
/// Paths of the configuration: that of the draft, then that of older servers.
const CONFIGURATION: [&str; 2] = ["/.well-known/nq", "/config"];

/// The URLs of the transfers of a server, for a test that loads the line in another way.
pub fn site(host: &str, port: u16, verify: bool) -> Result<Site, Error> {
    let tls = tls(verify)?;
    let asked = async { tokio::time::timeout(SETUP, find(host, port, &tls)).await };
    let configuration = Tasks::new()?.runtime().block_on(asked);
    let configuration = configuration.map_err(|_| slow(host, port))??;
    configuration.site(verify).map_err(|reason| Error::Refused {
        host: host.to_owned(),
        reason,
    })
}

/// The URLs of the transfers in the configuration at this URL. `None` if there is no configuration at this URL.
pub fn site_at(url: &str, verify: bool) -> Result<Option<Site>, Error> {
    let tls = tls(verify)?;
    let asked = async {
        let place = Place::of(url, None, None).await?;
        body(&tls, &place).await
    };
    let tasks = Tasks::new()?;
    let asked = tasks
        .runtime()
        .block_on(async { tokio::time::timeout(SETUP, asked).await });
    let text = asked.unwrap_or_else(|late| Err(late.into())).unwrap_or_default();
    let Ok(configuration) = serde_json::from_slice::<Configuration>(&text) else {
        return Ok(None);
    };
    configuration
        .site(verify)
        .map(Some)
        .map_err(|reason| Error::Refused {
            host: url.to_owned(),
            reason,
        })
}

/// The configuration file.
#[derive(Debug, Deserialize)]
pub(super) struct Configuration {
    /// URLs by the names of the draft, the older names, or both.
    pub(super) urls: BTreeMap<String, String>,
    pub(super) test_endpoint: Option<String>,
}

/// Names of the URLs in the configuration: that of the draft, and that of older servers.
pub(super) const SMALL: [&str; 2] = ["small_download_url", "small_https_download_url"];
pub(super) const LARGE: [&str; 2] = ["large_download_url", "large_https_download_url"];
pub(super) const UPLOAD: [&str; 2] = ["upload_url", "https_upload_url"];

impl Configuration {
    pub(super) fn url(&self, [name, older]: [&str; 2]) -> Result<&str, String> {
        let url = self.urls.get(name).or_else(|| self.urls.get(older));
        let url = url.ok_or_else(|| format!("its configuration has no {name}"))?;
        Ok(url)
    }

    /// The URLs of the transfers, for a test against plain URLs.
    fn site(&self, verify: bool) -> Result<Site, String> {
        Ok(Site {
            download: Some(self.url(LARGE)?.to_owned()),
            upload: Some(self.url(UPLOAD)?.to_owned()),
            instead: self.test_endpoint.clone(),
            verify,
            ..Site::default()
        })
    }
}

/// Reads the configuration of a server from the first path that has one.
pub(super) async fn find(host: &str, port: u16, tls: &TlsConnector) -> Result<Configuration, Error> {
    let failed = |reason| Error::Rpm {
        host: host.to_owned(),
        port,
        reason: shown(&reason),
    };
    let mut reason = io::Error::from(io::ErrorKind::NotFound);
    for path in CONFIGURATION {
        let url = format!("https://{}:{port}{path}", bracketed(host));
        let place = Place::of(&url, None, None).await.map_err(failed)?;
        match body(tls, &place).await {
            Ok(text) => {
                return serde_json::from_slice(&text).map_err(|e| Error::Refused {
                    host: host.to_owned(),
                    reason: foreign::brief(&format!("its configuration cannot be read: {e}"), MAX_REASON),
                });
            }
            Err(e) => reason = e,
        }
    }
    Err(failed(reason))
}

/// Gets the body at a URL.
pub(super) async fn body(tls: &TlsConnector, place: &Place) -> io::Result<Vec<u8>> {
    let mut connected = connect(tls, place, SMALL_WINDOW).await?;
    fetch(&mut connected.sender, place, MAX_CONFIGURATION).await
}

/// The error for a server that is not ready in time.
pub(super) fn slow(host: &str, port: u16) -> Error {
    let text = format!("it was not ready within {} s", SETUP.as_secs());
    Error::Rpm {
        host: host.to_owned(),
        port,
        reason: io::Error::new(io::ErrorKind::TimedOut, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Result<Site, String> {
        let configuration: Configuration = serde_json::from_str(text).expect("a configuration");
        configuration.site(true)
    }

    #[test]
    fn a_configuration_may_use_the_names_of_the_draft_or_older_ones() {
        let new = site(
            r#"{"version": 1, "urls": {"small_download_url": "https://a/s", "large_download_url": "https://a/l",
                "upload_url": "https://a/u"}, "test_endpoint": "edge.example"}"#,
        );
        let new = new.expect("a site");
        assert_eq!(new.download.as_deref(), Some("https://a/l"));
        assert_eq!(new.upload.as_deref(), Some("https://a/u"));
        assert_eq!(new.instead.as_deref(), Some("edge.example"));
        let old = site(
            r#"{"urls": {"large_https_download_url": "https://b/l", "https_upload_url": "https://b/u"}}"#,
        );
        assert_eq!(old.expect("a site").upload.as_deref(), Some("https://b/u"));
        let without = site(r#"{"urls": {"large_download_url": "https://a/l"}}"#);
        assert_eq!(without.unwrap_err(), "its configuration has no upload_url");
    }
}
