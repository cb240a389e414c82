//! The server that the line is loaded with: `sqm serve`, a responsiveness server, or any web server.

use sqm_core::direction::Direction;
use sqm_measure::client::web::{self, Site};
use sqm_measure::client::{self, Hooks, Outcome, Target, Test};
use sqm_measure::result::Settings;
use sqm_measure::scenario::Scenario;
use sqm_measure::{Error, rpm};

/// The other end of every measurement.
#[derive(Clone, Debug)]
pub enum Server {
    /// `sqm serve`.
    Own(Target),
    /// A server of draft-ietf-ippm-responsiveness.
    Rpm(Site),
    /// The URL of a large file, and optionally one that takes uploads.
    Url(Site),
}

impl Server {
    /// The responsiveness server at a host. Reads its configuration to learn the URLs.
    pub fn rpm(host: &str, port: u16, verify: bool) -> Result<Self, Error> {
        Ok(Self::Rpm(rpm::client::site(host, port, verify)?))
    }

    /// The server at a URL, which is the URL of a responsiveness server's configuration or of a large file.
    pub fn at(url: &str, verify: bool) -> Result<Self, Error> {
        Ok(match rpm::client::site_at(url, verify)? {
            Some(site) => Self::Rpm(site),
            None => Self::Url(Site {
                download: Some(url.to_owned()),
                verify,
                ..Site::default()
            }),
        })
    }

    /// Replaces the URL that takes uploads and the host that answers probes, if they are given.
    pub fn with(mut self, upload: Option<&str>, reflector: Option<&str>) -> Self {
        if let Self::Rpm(site) | Self::Url(site) = &mut self {
            site.upload = upload.map(str::to_owned).or_else(|| site.upload.take());
            site.reflector = reflector.map(str::to_owned);
        }
        self
    }

    /// The kind of server, as the report has it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Own(_) => "sqm serve",
            Self::Rpm(_) => "rpm",
            Self::Url(_) => "url",
        }
    }

    /// The directions that it can load.
    pub(crate) fn directions(&self) -> Vec<Direction> {
        match self {
            Self::Rpm(Site { upload: None, .. }) | Self::Url(Site { upload: None, .. }) => {
                vec![Direction::Download]
            }
            _ => Direction::BOTH.to_vec(),
        }
    }

    /// The quantities that such a server cannot measure, and the values that are used instead.
    pub(crate) fn not_told(&self) -> Vec<String> {
        let mut not_told = Vec::new();
        if !self.directions().contains(&Direction::Upload) {
            not_told.push(
                "upload: this server takes none, so the configured rate stays; --upload-url names a URL that takes a POST"
                    .to_owned(),
            );
        }
        if !matches!(self, Self::Own(_)) {
            not_told.push(
                "overhead: only sqm serve can measure it, so link layer and overhead stay as configured"
                    .to_owned(),
            );
            not_told.push(
                "one-way delays: only round trips are measured, and a queue is attributed to the loaded direction"
                    .to_owned(),
            );
        }
        not_told
    }

    /// Loads the line with the flows of `settings`. Blocks until the load has ended.
    pub(crate) fn load(
        &self,
        settings: Settings,
        title: Option<&str>,
        hooks: Hooks<'_>,
    ) -> Result<Outcome, Error> {
        match self {
            Self::Own(target) => {
                let test = Test {
                    targets: vec![target.clone()],
                    scenario: Scenario::of_flows(settings.down, settings.up, &[0]),
                    settings,
                    title: title.map(str::to_owned),
                };
                client::run(&test, hooks)
            }
            Self::Rpm(site) | Self::Url(site) => {
                let site = Site {
                    download: site.download.clone().filter(|_| settings.down > 0),
                    upload: site.upload.clone().filter(|_| settings.up > 0),
                    ..site.clone()
                };
                web::run(&site, &settings, title, hooks)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_upload_unless_one_is_named() {
        let file = Server::at("http://127.0.0.1:1/file", true).expect("a URL is not fetched yet");
        assert_eq!(
            (file.kind(), file.directions()),
            ("url", vec![Direction::Download])
        );
        assert_eq!(file.not_told().len(), 3);
        assert!(file.not_told()[0].starts_with("upload: "));
        let both = file.with(Some("http://127.0.0.1:1/in"), None);
        assert_eq!(both.directions(), Direction::BOTH);
        assert_eq!(both.not_told().len(), 2);
    }
}
