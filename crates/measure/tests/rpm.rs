//! Responsiveness by HTTP between our own client and server, on the same port as all other services.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sqm_measure::Error;
use sqm_measure::rpm::client::{self, Server as Target};
use sqm_measure::rpm::{Confidence, DRAFT};
use sqm_measure::server::{Config, Server};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};

fn serve(https: bool) -> SocketAddr {
    let config = Config {
        listen: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
        https,
        ..Config::default()
    };
    let server = Server::bind(config, |_| {}).unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || server.run());
    address
}

fn target(address: SocketAddr) -> Target {
    Target {
        host: address.ip().to_string(),
        port: address.port(),
        verify: false,
        limit: Duration::from_secs(5),
    }
}

#[test]
fn a_configuration_gives_a_site_by_host_and_by_url() {
    let address = serve(true);
    let (host, port) = (address.ip().to_string(), address.port());
    let by_name = client::site(&host, port, false).unwrap();
    assert_eq!(by_name.download, Some(format!("https://{address}/large")));
    assert_eq!(by_name.upload, Some(format!("https://{address}/upload")));
    let by_url = client::site_at(&format!("https://{address}/.well-known/nq"), false).unwrap();
    assert_eq!(by_url.unwrap().upload, by_name.upload);
    // A file is not a configuration, and neither is a URL that cannot be reached. Errors of such URLs show in the test.
    for other in [
        format!("https://{address}/large"),
        format!("https://{address}/nothing"),
        "http://127.0.0.1:1/file".to_owned(),
    ] {
        assert!(client::site_at(&other, false).unwrap().is_none(), "{other}");
    }
    // The self-signed certificate of sqm serve does not pass.
    assert!(client::site(&host, port, true).is_err());
}

#[test]
fn both_directions_are_loaded_and_probed() {
    let mut told = 0;
    let report = client::run(&target(serve(true)), &mut |_, _, _, _| told += 1).unwrap();
    assert_eq!((report.draft.as_str(), report.version), (DRAFT, client::VERSION));
    // Progress comes once a second. A busy machine may miss some.
    assert!(report.idle_rpm > Some(0.0) && told >= 4, "{told}");
    for figures in [report.download.clone().unwrap(), report.upload.clone().unwrap()] {
        assert!(figures.mbit > 1.0 && figures.connections > 1, "{figures:?}");
        assert!(
            figures.foreign_probes > 0 && figures.self_probes > 0,
            "{figures:?}"
        );
        assert!((figures.rpm - f64::midpoint(figures.foreign_rpm, figures.self_rpm)).abs() < 1e-6);
        assert_ne!(figures.confidence, Confidence::Low);
    }
    assert_eq!(report.findings, []);
    let grade = report.grade.expect("a grade");
    assert!(
        grade.to_text().contains("add") && grade.uses.len() == 4,
        "{grade:?}"
    );
}

/// A server of the protocol whose large file has one byte, and which reads nothing of uploads.
fn serve_nothing_large() -> SocketAddr {
    use hyper::service::service_fn;
    use sqm_measure::tls::Certificate;

    let config = Certificate::self_signed().unwrap().server(&[b"h2"]).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let url = |name: &str| format!(r#""{name}_url":"https://{address}/{name}""#);
    let [small, large, upload] = ["small_download", "large_download", "upload"].map(url);
    let configuration: &'static str =
        format!(r#"{{"version":1,"urls":{{{small},{large},{upload}}}}}"#).leak();
    let answer = move |request: Request<Incoming>| async move {
        let body = match request.uri().path() {
            "/.well-known/nq" => configuration,
            "/upload" => {
                // Keep the request, and read nothing of its body.
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(request);
                ""
            }
            _ => "x",
        };
        Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(body))))
    };
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    server.initial_stream_window_size(65_535);
                    let _ = server
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                });
            }
        });
    });
    address
}

#[test]
fn a_line_without_load_has_no_figures() {
    let mut target = target(serve_nothing_large());
    target.limit = Duration::from_secs(3);
    let report = client::run(&target, &mut |_, _, _, _| {}).unwrap();
    assert!(report.idle_rpm > Some(0.0));
    assert_eq!((&report.download, &report.upload), (&None, &None));
    let codes: Vec<&str> = report
        .findings
        .iter()
        .map(|finding| finding.code.as_str())
        .collect();
    assert_eq!(codes, ["load_not_reached", "load_not_reached", "no_grade"]);
    for (finding, word) in report.findings.iter().zip(["the download", "the upload"]) {
        assert!(finding.text.starts_with(word), "{finding:?}");
    }
}

#[test]
fn a_self_signed_certificate_is_refused_by_default() {
    let mut strict = target(serve(true));
    strict.verify = true;
    let error = client::run(&strict, &mut |_, _, _, _| {}).unwrap_err();
    assert!(matches!(error, Error::Rpm { .. }), "{error}");
    assert!(error.to_string().contains("--insecure"), "{error}");
}

#[test]
fn without_https_the_client_says_what_is_missing() {
    let error = client::run(&target(serve(false)), &mut |_, _, _, _| {}).unwrap_err();
    assert!(
        error.to_string().contains("draft-ietf-ippm-responsiveness"),
        "{error}"
    );
}

/// Broken handshakes do not keep other clients out.
#[test]
fn broken_handshakes_do_no_harm() {
    let address = serve(true);
    let mut broken = Vec::new();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01"[..],
        b"\x16\xff\xff\xff\xff\xff",
        b"\x16",
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        broken.push(stream);
    }
    let mut nonsense = TcpStream::connect(address).unwrap();
    nonsense.write_all(b"\x16\x03\x01\x00\x05hello").unwrap();
    nonsense.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut alert = Vec::new();
    // The server sends an alert, or closes the connection.
    let _ = nonsense.read_to_end(&mut alert);
    let mut quick = target(address);
    quick.limit = Duration::from_secs(2);
    client::run(&quick, &mut |_, _, _, _| {}).unwrap();
}

/// Some clients open a hundred probe connections a second, and close none of them.
#[test]
fn connections_that_clients_leave_open_make_room_for_new_ones() {
    const PROBES: usize = 300;
    let address = serve(true);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut load = connect(address).await;
        let mut download = ask(&mut load, address, "GET", "/large", "").await.into_body();
        let mut left_open = Vec::new();
        for number in 0..PROBES {
            let mut probe = connect(address).await;
            let answer = ask(&mut probe, address, "GET", "/small", "").await;
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), 1, "probe {number}");
            left_open.push(probe);
        }
        // They do not evict the connection that loads the line, and a connection in use still accepts requests.
        let data = download.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!data.is_empty());
        let answer = ask(&mut load, address, "GET", "/small", "").await;
        assert_eq!(answer.status(), 200);
        let mut next = connect(address).await;
        let answer = ask(&mut next, address, "POST", "/upload", "some bytes").await;
        assert_eq!(answer.status(), 200);
        assert!(left_open[0].ready().await.is_err(), "the oldest is evicted");
        assert!(left_open[PROBES - 1].ready().await.is_ok(), "the newest stayed");
    });
}

/// An HTTP/2 connection to the server. Any certificate is accepted.
async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    let tls = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &'static str,
) -> Response<Incoming> {
    let request = Request::builder()
        .method(method)
        .uri(format!("https://{address}{path}"))
        .body(Full::from(body))
        .unwrap();
    sender.ready().await.unwrap();
    sender.send_request(request).await.unwrap()
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
