//! The URLs of a test, and their addresses.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_rustls::TlsConnector;

use super::transfer::final_place;
use crate::Error;
use crate::deadline::Deadline;
use crate::http::{Place, Tasks, look_up, shown, tls_config};
use crate::scenario::Family;

/// The URLs that load the line, and the reflector of the probes.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// URL of a large file.
    pub download: Option<String>,
    /// URL that accepts a POST of any size.
    pub upload: Option<String>,
    /// Host name or address to connect to instead of the hosts in these URLs.
    pub instead: Option<String>,
    /// Host name or address of a machine beyond the line that answers ICMP, TCP or DNS. A port after a colon is that of TCP. `None`
    /// takes the host of the file.
    pub reflector: Option<String>,
    /// IPv4 only or IPv6 only.
    pub family: Option<Family>,
    /// True to verify certificates.
    pub verify: bool,
}

/// Resolves the URLs of a site.
pub(super) fn find(site: &Site, tasks: &Tasks, deadline: &Deadline<'_>) -> Result<Route, Error> {
    let (theirs, url) = (
        site.clone(),
        site.download.clone().or_else(|| site.upload.clone()),
    );
    let found = tasks.wait(deadline, async move { Route::find(&theirs).await });
    found.map_err(|why| {
        why.or(|reason| Error::Url {
            url: url.unwrap_or_default(),
            reason,
        })
    })?
}

/// The resolved addresses.
pub(super) struct Route {
    pub(super) download: Option<Place>,
    pub(super) upload: Option<Place>,
    pub(super) reflector: SocketAddr,
    /// Our own address on the route to the first URL.
    pub(super) local: SocketAddr,
    pub(super) tls: TlsConnector,
}

impl Route {
    async fn find(site: &Site) -> Result<Self, Error> {
        let tls = TlsConnector::from(Arc::new(tls_config(site.verify, b"http/1.1")?));
        let failed = |url: &str, reason| Error::Url {
            url: url.to_owned(),
            reason: shown(&reason),
        };
        let mut found = [None, None];
        for (place, url) in found.iter_mut().zip([&site.download, &site.upload]) {
            if let Some(url) = url {
                let at = Place::of(url, site.instead.as_deref(), site.family)
                    .await
                    .map_err(|e| failed(url, e))?;
                *place = Some(at);
            }
        }
        let [mut download, upload] = found;
        if let (Some(place), Some(url)) = (&mut download, &site.download) {
            *place = final_place(place, &tls, site.family)
                .await
                .map_err(|e| failed(url, e))?;
        }
        let first = download.as_ref().or(upload.as_ref()).map(|place| place.address);
        let first = first.expect("one URL was checked to be there");
        let reflector = match &site.reflector {
            None => first,
            Some(named) => reflector(named, first.port(), site.family).await?,
        };
        let local = std::net::UdpSocket::bind(unspecified(first))
            .and_then(|socket| socket.connect(first).and_then(|()| socket.local_addr()))
            .map_err(|e| Error::system("find the route to the server", e))?;
        Ok(Self {
            download,
            upload,
            reflector,
            local,
            tls,
        })
    }
}

/// Resolves a host name or an address, either with or without a port.
async fn reflector(named: &str, usual: u16, family: Option<Family>) -> Result<SocketAddr, Error> {
    let (host, port) = match named.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
        _ => (named, Some(usual)),
    };
    let port = port.ok_or_else(|| Error::Settings(format!("'{named}' has no port after its colon")))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    look_up(host, port, family)
        .await
        .map_err(|reason| Error::Resolve {
            host: named.to_owned(),
            wanted: "",
            reason: reason.to_string(),
        })
}

fn unspecified(like: SocketAddr) -> SocketAddr {
    let any: std::net::IpAddr = match like {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}
