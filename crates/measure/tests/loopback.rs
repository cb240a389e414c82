//! Whole tests between a client and a server in this process, and clients that mean no good.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use sqm_measure::client::{self, Progress, Target};
use sqm_measure::protocol::{self, Hello, MAX_REPLY, Probe, Reply, Request, Token};
use sqm_measure::result::{Direction, Settings, TestResult};
use sqm_measure::server::{Config, Server};
use sqm_measure::{Error, plot};

fn serve(ip: IpAddr, max_clients: usize) -> SocketAddr {
    let config = Config {
        listen: Some(SocketAddr::new(ip, 0)),
        max_clients,
        ..Config::default()
    };
    let server = Server::bind(config).unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || server.run().map(drop));
    address
}

fn target(address: SocketAddr) -> Target {
    Target {
        host: address.ip().to_string(),
        port: address.port(),
        family: None,
    }
}

/// Two seconds, with the system's own congestion control: an unprivileged process may not choose every other.
fn short() -> Settings {
    Settings {
        down: 2,
        up: 1,
        idle_ms: 300,
        load_ms: 2000,
        settle_ms: 200,
        probe_interval_ms: 50,
        congestion: None,
        dscp: vec![0, 46],
        ..Settings::default()
    }
}

fn test_on(ip: IpAddr) -> TestResult {
    let mut phases = Vec::new();
    let result = client::run(&target(serve(ip, 1)), &short(), Some("loopback"), &mut |p| {
        phases.push(p)
    })
    .unwrap();
    assert!(matches!(phases[0], Progress::Idle { .. }));
    assert_eq!(phases.last(), Some(&Progress::Collect));

    let summary = &result.summary;
    assert!(summary.download_mbit > 0.0 && summary.upload_mbit > 0.0);
    assert!(summary.idle_ms.is_some() && summary.latency_median_ms.is_some());
    assert!(summary.probes_sent >= 40, "{} probes", summary.probes_sent);
    assert_eq!(summary.probes_lost, 0);
    assert_eq!(result.flows(Direction::Down).count(), 2);
    assert_eq!(result.flows(Direction::Up).count(), 1);
    assert_eq!(
        result.flows.iter().map(|f| f.dscp).collect::<Vec<_>>(),
        [0, 46, 0]
    );
    for flow in &result.flows {
        assert_eq!(flow.samples.len(), 20);
        assert!(!flow.congestion.is_empty());
    }
    let [probes] = result.probes.as_slice() else {
        panic!("one series of probes, not {}", result.probes.len());
    };
    assert!(probes.samples.windows(2).all(|pair| pair[0].t_ms < pair[1].t_ms));
    assert!(probes.samples.iter().all(|p| p.t_ms >= p.due_ms));
    assert_eq!(TestResult::from_json(&result.to_json()).unwrap(), result);
    assert!(plot::rrul(&result).ends_with("</svg>\n"));
    result
}

#[test]
fn both_directions_with_probes_over_ipv4() {
    assert!(
        test_on(Ipv4Addr::LOCALHOST.into())
            .meta
            .remote
            .starts_with("127.0.0.1:")
    );
}

#[test]
fn both_directions_with_probes_over_ipv6() {
    assert!(
        test_on(Ipv6Addr::LOCALHOST.into())
            .meta
            .remote
            .starts_with("[::1]:")
    );
}

#[test]
fn a_missing_server_is_named_with_the_remedy() {
    let address = serve_nothing();
    let error = client::run(&target(address), &short(), None, &mut |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("127.0.0.1") && text.contains("sqm serve"), "{text}");
}

/// A port that was free a moment ago.
fn serve_nothing() -> SocketAddr {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

#[test]
fn impossible_settings_are_refused_before_anything_is_sent() {
    let nobody = serve_nothing();
    for settings in [
        Settings { down: 65, ..short() },
        Settings {
            load_ms: 1200,
            ..short()
        },
        Settings {
            probe_interval_ms: 0,
            ..short()
        },
        Settings {
            dscp: vec![64],
            ..short()
        },
    ] {
        let error = client::run(&target(nobody), &settings, None, &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Settings(_)), "{error}");
    }
}

#[test]
fn an_unknown_congestion_control_is_refused_with_the_known_ones() {
    let settings = Settings {
        congestion: Some("no-such-thing".to_owned()),
        ..short()
    };
    let error = client::run(&target(serve_nothing()), &settings, None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Congestion { .. }), "{error}");
}

#[test]
fn a_server_that_dies_is_reported() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || drop(listener.accept()));
    let error = client::run(&target(address), &short(), None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Vanished { .. }), "{error}");
}

// Clients that mean no good.

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    // Only so that a broken server fails the test instead of stopping it.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn reply(stream: &mut TcpStream) -> Reply {
    let mut pending = Vec::new();
    loop {
        if let Some((reply, _)) = protocol::decode(&pending, MAX_REPLY).unwrap() {
            return reply;
        }
        let mut chunk = [0; 1024];
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "closed without a reply");
        pending.extend_from_slice(&chunk[..n]);
    }
}

fn refusal(stream: &mut TcpStream) -> String {
    match reply(stream) {
        Reply::Error { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn control(version: u32, down: u32) -> Vec<u8> {
    protocol::encode(&Hello::Control {
        version,
        down,
        up: 0,
        load_ms: 1000,
        congestion: None,
    })
}

fn open_test(server: SocketAddr, down: u32) -> (TcpStream, Token) {
    let mut stream = connect(server);
    stream.write_all(&control(protocol::VERSION, down)).unwrap();
    match reply(&mut stream) {
        Reply::Welcome { token, .. } => (stream, token),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nonsense_is_refused_and_the_server_lives_on() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 4);
    let body = b"\x00\x00\x00\x08\xff\xfe[{\"}\x00\x00";
    let too_long = (protocol::MAX_REQUEST as u32 + 1).to_be_bytes();
    for (bytes, words) in [
        (body.as_slice(), "not a message"),
        (&too_long, "at most 4096"),
        (&[0xff; 64], "at most 4096"),
        (b"GET / HTTP/1.1\r\n\r\n", "at most 4096"),
        (&control(99, 1), "protocol version"),
        (&control(protocol::VERSION, 65), "at most 64 flows"),
    ] {
        let mut stream = connect(server);
        stream.write_all(bytes).unwrap();
        let reason = refusal(&mut stream);
        assert!(reason.contains(words), "{reason}");
    }
    let mut half = connect(server);
    half.write_all(&control(protocol::VERSION, 1)[..10]).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert!(refusal(&mut half).contains("closed"));
    open_test(server, 1);
}

#[test]
fn a_wrong_token_attaches_nothing() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 4);
    let (_control, token) = open_test(server, 1);
    let attach = |token, flow| {
        let mut stream = connect(server);
        let hello = Hello::Data {
            token,
            direction: Direction::Down,
            flow,
            dscp: 0,
        };
        stream.write_all(&protocol::encode(&hello)).unwrap();
        (reply(&mut stream), stream)
    };
    assert!(matches!(attach(Token([7; 16]), 0), (Reply::Error { .. }, _)));
    assert!(matches!(attach(token, 1), (Reply::Error { .. }, _)));
    let first = attach(token, 0);
    assert!(matches!(first, (Reply::Attached { .. }, _)));
    assert!(matches!(attach(token, 0), (Reply::Error { .. }, _)));
}

#[test]
fn a_start_without_the_flows_is_refused() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 4);
    let (mut stream, _) = open_test(server, 1);
    stream.write_all(&protocol::encode(&Request::Start)).unwrap();
    assert!(refusal(&mut stream).contains("not all flows"));
}

#[test]
fn probes_are_answered_for_a_token_only_and_never_with_more_bytes() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 4);
    let (_control, token) = open_test(server, 1);
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    udp.connect(server).unwrap();
    let good = Probe {
        token,
        sequence: 5,
        sent_ns: 6,
        server_ns: 0,
    };
    udp.send(
        &Probe {
            token: Token([7; 16]),
            ..good
        }
        .encode(),
    )
    .unwrap();
    udp.send(&good.encode()[..Probe::LENGTH - 1]).unwrap();
    udp.send(&[0; 1200]).unwrap();
    udp.send(&good.encode()).unwrap();
    let mut buffer = [0; 2048];
    let length = udp.recv(&mut buffer).unwrap();
    assert_eq!(length, Probe::LENGTH);
    let echo = Probe::decode(&buffer[..length]).unwrap();
    assert_eq!(Probe { server_ns: 0, ..echo }, good);
    assert!(echo.server_ns > 0);
}

#[test]
fn a_silent_or_vanished_client_holds_nothing_for_others() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 1);
    let _silent = connect(server);
    let (first, _) = open_test(server, 1);
    let mut second = connect(server);
    second.write_all(&control(protocol::VERSION, 1)).unwrap();
    assert!(refusal(&mut second).contains("busy"));
    drop(first);
    // The place is free as soon as the server has noticed.
    loop {
        let mut again = connect(server);
        again.write_all(&control(protocol::VERSION, 1)).unwrap();
        match reply(&mut again) {
            Reply::Welcome { .. } => break,
            Reply::Error { .. } => thread::sleep(Duration::from_millis(10)),
            other => panic!("{other:?}"),
        }
    }
}
