//! Responsiveness by HTTP between our own client and server, on the port of everything else.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use sqm_measure::Error;
use sqm_measure::rpm::client::{self, Server as Target};
use sqm_measure::rpm::{Confidence, DRAFT};
use sqm_measure::server::{Config, Server};

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
fn both_directions_are_loaded_and_probed() {
    let mut told = 0;
    let report = client::run(&target(serve(true)), &mut |_, _, _, _| told += 1).unwrap();
    assert_eq!(report.draft, DRAFT);
    assert!(report.idle_rpm > Some(0.0) && told >= 10);
    for figures in [report.download.unwrap(), report.upload.unwrap()] {
        assert!(figures.mbit > 1.0 && figures.connections > 1, "{figures:?}");
        assert!(
            figures.foreign_probes > 0 && figures.self_probes > 0,
            "{figures:?}"
        );
        assert!((figures.rpm - f64::midpoint(figures.foreign_rpm, figures.self_rpm)).abs() < 1e-6);
        assert_ne!(figures.confidence, Confidence::Low);
    }
}

#[test]
fn a_certificate_of_its_own_making_is_refused_unless_told_otherwise() {
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

/// Handshakes that lead nowhere do not keep others out.
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
    // It is told so, or cut off.
    let _ = nonsense.read_to_end(&mut alert);
    let mut quick = target(address);
    quick.limit = Duration::from_secs(2);
    client::run(&quick, &mut |_, _, _, _| {}).unwrap();
}
