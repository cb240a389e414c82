//! The parts that all HTTP clients here share: URLs, TLS settings and requests.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Method, Request, Uri, header};
use tokio::runtime::Runtime;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::Error;
use crate::deadline::{Deadline, WaitError};
use crate::foreign::{self, MAX_REASON};
use crate::host::refuse_odd_host;
use crate::load;
use crate::scenario::Family;

/// Number of task polls after which tokio checks timers and sockets.
const EVENT_INTERVAL: u32 = 4;

/// Threads for asynchronous tasks. Dropping it does not wait for blocking calls that are still in progress, such as a query to a name
/// server that does not answer.
pub(crate) struct Tasks(Option<Runtime>);

impl Tasks {
    pub(crate) fn new() -> Result<Self, Error> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            // A server that floods a connection keeps its task busy; timers must still be checked.
            .event_interval(EVENT_INTERVAL)
            .enable_all()
            .build()
            .map(|runtime| Self(Some(runtime)))
            .map_err(|e| Error::system("start threads", e))
    }

    /// Waits for the outcome of a task. The wait is in the calling thread: a server that keeps the threads here busy cannot delay the
    /// deadline or the user's wish to stop.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        deadline: &Deadline<'_>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, WaitError> {
        let (sender, receiver) = mpsc::channel();
        self.runtime().spawn(async move {
            // Fails if the receiver has given up waiting.
            let _ = sender.send(task.await);
        });
        deadline.receive(&receiver)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken at the end only")
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A body that a client sends.
pub(crate) type Upload = BoxBody<Bytes, Infallible>;

/// A body of pseudo-random bytes.
pub(crate) struct EndlessBody {
    /// Bytes that are still to come.
    pub(crate) left: u64,
}

impl Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let noise = Bytes::from_static(load::payload());
        let length = (noise.len() as u64).min(self.left);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(noise.slice(..length as usize)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A resolved URL.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) uri: Uri,
    pub(crate) address: SocketAddr,
    /// The name in its certificate. `None` without TLS.
    pub(crate) name: Option<ServerName<'static>>,
}

impl Place {
    /// Resolves the host of a URL, or the host `instead` if there is one.
    pub(crate) async fn of(url: &str, instead: Option<&str>, family: Option<Family>) -> io::Result<Self> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned());
        let uri: Uri = url.parse().map_err(|_| invalid("it is not a URL"))?;
        let (is_secure, usual) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(invalid("it does not begin with https:// or http://")),
        };
        let host = uri.host().ok_or_else(|| invalid("it has no host"))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port(&uri).map_err(|reason| invalid(&reason))?.unwrap_or(usual);
        let name = ServerName::try_from(bare.clone()).map_err(|_| invalid("its host is not a valid name"))?;
        let address = look_up(instead.unwrap_or(&bare), port, family).await?;
        Ok(Self {
            uri,
            address,
            name: is_secure.then_some(name),
        })
    }
}

/// The port in a URL. An invalid one is refused and does not become the default.
pub(crate) fn port(uri: &Uri) -> Result<Option<u16>, String> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // The colons of an IPv6 address are inside of its brackets.
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match after_address.split_once(':') {
        None | Some((_, "")) => Ok(None),
        Some((_, text)) => match text.parse() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(format!("'{text}' is not a port; a port is from 1 to 65535")),
        },
    }
}

/// The first address of a name, of this family if one is given.
pub(crate) async fn look_up(host: &str, port: u16, family: Option<Family>) -> io::Result<SocketAddr> {
    let is_wanted = |address: &SocketAddr| match family {
        None => true,
        Some(Family::V4) => matches!(address.ip(), IpAddr::V4(_)),
        Some(Family::V6) => matches!(address.ip(), IpAddr::V6(_)),
    };
    refuse_odd_host(host)?;
    let mut found = tokio::net::lookup_host((host, port)).await?;
    found.find(is_wanted).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{host} has no address of that family"),
        )
    })
}

/// An error whose text is safe to print: it may contain text from the other end, such as the names in its certificate.
pub(crate) fn shown(reason: &io::Error) -> io::Error {
    io::Error::new(reason.kind(), foreign::brief(&reason.to_string(), MAX_REASON))
}

/// A host for a URL, with brackets around an IPv6 address.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// A request for HTTP/2. HTTP/1.1 needs [`in_origin_form`].
pub(crate) fn request(method: Method, place: &Place, body: Upload) -> io::Result<Request<Upload>> {
    Request::builder()
        .method(method)
        .uri(place.uri.clone())
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, concat!("sqm/", env!("CARGO_PKG_VERSION")))
        .body(body)
        .map_err(io::Error::other)
}

/// A request for HTTP/1.1, with the host in a header (RFC 9112, section 3.2.1).
pub(crate) fn in_origin_form(method: Method, place: &Place, body: Upload) -> io::Result<Request<Upload>> {
    let mut request = request(method, place, body)?;
    let host = place.uri.authority().map(ToString::to_string).unwrap_or_default();
    let host = header::HeaderValue::from_str(&host).map_err(io::Error::other)?;
    request.headers_mut().insert(header::HOST, host);
    let path = place.uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(io::Error::other)?;
    Ok(request)
}

/// A TLS configuration for a protocol by its ALPN name. Without `verify` any certificate is accepted, such as the self-signed one of
/// `sqm serve`.
pub(crate) fn tls_config(verify: bool, protocol: &[u8]) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::system("set up TLS", io::Error::other(e)))?;
    let mut config = if verify {
        let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth()
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    // A resumed session would skip the round trip that is to be measured.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Accepts every certificate. The signature in the handshake is still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_port_is_refused() {
        let port = |url: &str| port(&url.parse().unwrap());
        assert_eq!(port("http://192.0.2.1/"), Ok(None));
        assert_eq!(port("http://192.0.2.1:/"), Ok(None), "RFC 3986, section 3.2.3");
        assert_eq!(port("https://192.0.2.1:8443/"), Ok(Some(8443)));
        assert_eq!(port("https://someone@[2001:db8::1]:8443/"), Ok(Some(8443)));
        assert_eq!(port("https://[2001:db8::1]/"), Ok(None));
        for (url, named) in [
            ("http://127.0.0.1:99999/", "99999"),
            ("http://[::1]:65536/", "65536"),
            ("http://127.0.0.1:0/", "0"),
            (
                "http://someone@127.0.0.1:184467440737095516160/",
                "184467440737095516160",
            ),
        ] {
            let Err(reason) = port(url) else {
                panic!("{url} is taken");
            };
            assert!(reason.contains(&format!("'{named}' is not a port")), "{reason}");
        }
    }
}
