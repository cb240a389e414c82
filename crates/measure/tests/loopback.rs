//! Complete tests between a client and a server in this process, and malicious clients and servers.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sqm_core::direction::Direction;
use sqm_measure::client::{self, Hooks, Outcome, Progress, Stage, Target, Test};
use sqm_measure::grade::Verdict;
use sqm_measure::protocol::{self, Echo, Hello, MAX_REPLY, Probe, Reply, Request, Token};
use sqm_measure::result::{LoadOrder, PhaseFigures, ProbeKind, Settings, TcpSample, TestResult};
use sqm_measure::scenario::Scenario;
use sqm_measure::server::{Config, Server};
use sqm_measure::{Error, plot};

fn serve(ip: IpAddr, max_clients: usize) -> SocketAddr {
    serve_as(Config {
        listen: Some(SocketAddr::new(ip, 0)),
        max_clients,
        ..Config::default()
    })
}

fn serve_as(config: Config) -> SocketAddr {
    let server = Server::bind(config, |_| {}).unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || server.run());
    address
}

/// A test of two seconds. It keeps the system's congestion control, because an unprivileged process may not use every other.
fn short() -> Settings {
    Settings {
        down: 2,
        up: 1,
        idle_ms: 300,
        load_ms: 2000,
        after_ms: 300,
        settle_ms: 200,
        probe_interval_ms: 50,
        congestion: None,
        ..Settings::default()
    }
}

fn against(address: SocketAddr, scenario: Scenario) -> Test {
    Test {
        targets: vec![Target {
            host: address.ip().to_string(),
            port: address.port(),
            family: None,
            secret: None,
        }],
        scenario,
        settings: short(),
        title: Some("loopback".to_owned()),
    }
}

fn run(test: &Test) -> Result<Outcome, Error> {
    run_with(test, &AtomicBool::new(false), &mut |_| {})
}

fn run_with(test: &Test, stop: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, Error> {
    let hooks = Hooks {
        progress,
        stop,
        gauges: None,
    };
    client::run(test, hooks)
}

/// Runs a test that must not fail.
fn complete(test: &Test) -> TestResult {
    let outcome = run(test).unwrap();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    outcome.result
}

fn test_on(ip: IpAddr) -> TestResult {
    let mut stages = Vec::new();
    let test = against(serve(ip, 1), Scenario::of_flows(2, 1, &[0, 46]));
    let outcome = run_with(&test, &AtomicBool::new(false), &mut |p| stages.push(p.stage)).unwrap();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let result = outcome.result;
    stages.dedup();
    assert_eq!(stages, [Stage::Idle, Stage::Load, Stage::After, Stage::Collect]);

    let summary = &result.summary;
    assert!(summary.download_mbit > Some(0.0) && summary.upload_mbit > Some(0.0));
    assert!(summary.idle_ms.is_some() && summary.latency_median_ms.is_some());
    assert!(summary.probes_sent >= 40, "{} probes", summary.probes_sent);
    assert_eq!(summary.probes_lost, 0);
    assert_eq!(
        result.flows.iter().map(|f| f.dscp).collect::<Vec<_>>(),
        [0, 46, 0]
    );
    for flow in &result.flows {
        assert_eq!(flow.samples.len(), 20);
        assert!(!flow.congestion.is_empty());
        // Both ends have TCP samples, and those of the sender have a round trip.
        assert!(
            flow.sender.len() >= 10 && flow.receiver.len() >= 10,
            "{}",
            flow.name
        );
        assert!(
            flow.sender
                .iter()
                .any(|s| s.rtt_ms > Some(0.0) && s.cwnd > Some(0.0))
        );
        assert!(flow.totals.unwrap().bytes_sent > 0 && flow.mss > Some(0) && flow.ecn.is_some());
    }
    let udp = result.probes.iter().find(|s| s.kind == ProbeKind::Udp).unwrap();
    assert!(udp.samples.windows(2).all(|pair| pair[0].t_ms < pair[1].t_ms));
    assert!(udp.samples.iter().all(|p| p.t_ms >= p.due_ms));
    // The one-way delays add up to the round trip.
    for probe in &udp.samples {
        let (up, down, rtt) = (
            probe.up_ms.unwrap(),
            probe.down_ms.unwrap(),
            probe.rtt_ms.unwrap(),
        );
        assert!((up + down - rtt).abs() < 0.002, "{up} + {down} = {rtt}");
    }
    assert!(result.meta.clock.unwrap().error_ms > 0.0);
    assert!(result.evidence.iter().any(|s| s.name.starts_with("cpu_stats_")));
    assert!(
        TestResult::from_json(&result.to_json()).unwrap() == result,
        "the file holds the complete result"
    );
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
fn dscps_are_recorded_on_arrival() {
    let result = complete(&against(
        serve(Ipv6Addr::LOCALHOST.into(), 1),
        Scenario::named("rrul", &[], 4, 4).unwrap(),
    ));
    for series in result.probes.iter().filter(|s| s.kind == ProbeKind::Udp) {
        let byte = series.dscp << 2;
        assert_eq!(
            series.arrived_up.keys().collect::<Vec<_>>(),
            [&byte],
            "{}",
            series.name
        );
        assert_eq!(
            series.arrived_down.keys().collect::<Vec<_>>(),
            [&byte],
            "{}",
            series.name
        );
    }
    for flow in result.flows(Direction::Upload) {
        assert_eq!(flow.dscp_arrived, Some(flow.dscp), "{}", flow.name);
    }
    let connects = result.probes.iter().find(|s| s.kind == ProbeKind::Tcp).unwrap();
    assert!(connects.samples.iter().all(|p| p.rtt_ms.is_some()));
}

#[test]
fn a_segment_size_applies_to_both_directions() {
    let mut test = against(
        serve(Ipv4Addr::LOCALHOST.into(), 1),
        Scenario::of_flows(1, 1, &[0]),
    );
    test.settings.mss = Some(536);
    for flow in complete(&test).flows {
        // Timestamps take twelve bytes of each segment.
        assert_eq!(flow.mss, Some(524), "{}", flow.name);
    }
}

#[test]
fn one_test_over_ipv4_and_ipv6() {
    let address = serve(Ipv6Addr::UNSPECIFIED.into(), 2);
    let mut test = against(address, Scenario::named("rrul46", &[], 4, 4).unwrap());
    let four = Target {
        host: "127.0.0.1".to_owned(),
        ..test.targets[0].clone()
    };
    let six = Target {
        host: "::1".to_owned(),
        ..four.clone()
    };
    test.targets = vec![four, six];
    let result = complete(&test);
    for peer in ["IPv4", "IPv6"] {
        let mine = result.flows.iter().filter(|f| f.peer.as_deref() == Some(peer));
        assert!(mine.clone().count() == 4 && mine.clone().all(|f| f.mbit > 0.0));
    }
}

#[test]
fn a_voice_call_without_load_has_probes_only() {
    let result = complete(&against(
        serve(Ipv4Addr::LOCALHOST.into(), 1),
        Scenario::named("voip", &[], 0, 0).unwrap(),
    ));
    let [call] = result.probes.as_slice() else {
        panic!("one call, not {}", result.probes.len());
    };
    assert_eq!((call.bytes, call.interval_ms), (Some(172), 20.0));
    assert!(call.samples.len() > 100, "{} packets", call.samples.len());
}

#[test]
fn a_rate_is_not_exceeded_in_either_direction() {
    let address = serve_as(Config {
        listen: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
        max_rate: Some(1_000_000),
        ..Config::default()
    });
    let mut test = against(address, Scenario::of_flows(2, 2, &[0]));
    // Long enough that the content of a receive window is a small part.
    test.settings.load_ms = 5000;
    let summary = complete(&test).summary;
    // The limit is 8 Mbit/s. Receive windows and a busy machine change the figure; without a limit it would be hundreds of times larger.
    for mbit in [summary.download_mbit, summary.upload_mbit] {
        assert!(mbit > Some(0.5) && mbit < Some(16.0), "{summary:?}");
    }
}

#[test]
fn a_client_without_the_secret_is_refused() {
    let address = serve_as(Config {
        listen: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
        secret: Some("open sesame".to_owned()),
        ..Config::default()
    });
    let mut test = against(address, Scenario::of_flows(1, 0, &[0]));
    assert!(matches!(run(&test).unwrap_err(), Error::Secret { .. }));
    test.targets[0].secret = Some("open barley".to_owned());
    assert!(matches!(run(&test).unwrap_err(), Error::Refused { .. }));
    test.targets[0].secret = Some("open sesame".to_owned());
    complete(&test);
}

#[test]
fn a_test_that_the_user_ends_keeps_its_measurements() {
    let mut test = against(
        serve(Ipv4Addr::LOCALHOST.into(), 1),
        Scenario::of_flows(1, 1, &[0]),
    );
    test.settings.load_ms = 60_000;
    let stop = AtomicBool::new(false);
    let outcome = run_with(&test, &stop, &mut |p| {
        let is_enough = p.stage == Stage::Load && p.elapsed > Duration::from_secs(2);
        stop.fetch_or(is_enough, Ordering::AcqRel);
    })
    .unwrap();
    assert!(matches!(outcome.failure, Some(Error::Interrupted { .. })));
    let result = outcome.result;
    assert!(result.meta.partial.is_some() && Verdict::of(&result).grade.is_none());
    for flow in &result.flows {
        let bytes: u64 = flow.samples.iter().map(|s| s.bytes).sum();
        assert!(bytes > 0 && flow.samples.len() < 100, "{}", flow.name);
    }
}

#[test]
fn the_error_for_a_missing_server_says_what_to_do() {
    let address = serve_nothing();
    let error = run(&against(address, Scenario::of_flows(1, 1, &[0]))).unwrap_err();
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
fn impossible_settings_are_refused_before_the_test() {
    let mut test = against(serve_nothing(), Scenario::of_flows(65, 0, &[0]));
    assert!(matches!(run(&test), Err(Error::Settings(_))));
    test.scenario = Scenario::of_flows(1, 0, &[64]);
    assert!(matches!(run(&test), Err(Error::Settings(_))));
    test.scenario = Scenario::of_flows(1, 0, &[0]);
    for settings in [
        Settings {
            load_ms: 1200,
            ..short()
        },
        Settings {
            probe_interval_ms: 0,
            ..short()
        },
        Settings {
            mss: Some(40),
            ..short()
        },
    ] {
        test.settings = settings;
        assert!(
            matches!(run(&test), Err(Error::Settings(_))),
            "{:?}",
            test.settings
        );
    }
}

#[test]
fn an_unknown_congestion_control_is_refused_with_a_list_of_the_available_ones() {
    let mut test = against(serve_nothing(), Scenario::of_flows(1, 0, &[0]));
    test.settings.congestion = Some("no-such-thing".to_owned());
    assert!(matches!(run(&test), Err(Error::Congestion { .. })));
}

// Malicious servers.

/// A server that calls `behave` with the first connection, and does not answer probes.
fn bad_server(behave: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || behave(listener.accept().unwrap().0));
    address
}

#[test]
fn a_server_that_closes_the_connection_is_reported() {
    let address = bad_server(drop);
    let error = run(&against(address, Scenario::of_flows(1, 1, &[0]))).unwrap_err();
    assert!(matches!(error, Error::Vanished { .. }), "{error}");
}

#[test]
fn a_silent_server_is_reported_within_ten_seconds() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let address = bad_server(move |stream| {
        let _ = wait.recv();
        drop(stream);
    });
    let error = run(&against(address, Scenario::of_flows(1, 1, &[0]))).unwrap_err();
    assert!(error.to_string().contains("no answer within 8 s"), "{error}");
    drop(done);
}

#[test]
fn a_server_that_sends_invalid_messages_is_reported() {
    for nonsense in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x02[]",
        &[0xff; 4],
    ] {
        let address = bad_server(move |mut stream| {
            stream.write_all(nonsense).unwrap();
            let _ = stream.read(&mut [0; 4096]);
        });
        let error = run(&against(address, Scenario::of_flows(1, 1, &[0]))).unwrap_err();
        assert!(matches!(error, Error::Vanished { .. }), "{error}");
    }
}

/// A relay to a real server that changes the messages of the server.
fn changing_relay(change: impl Fn(&mut Reply) -> bool + Send + 'static) -> SocketAddr {
    let real = serve(Ipv4Addr::LOCALHOST.into(), 1);
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // The relay forwards probes, too.
    let echo = UdpSocket::bind(address).unwrap();
    thread::spawn(move || {
        let ahead = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        ahead.connect(real).unwrap();
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = echo.recv_from(&mut buffer) {
            let answered = ahead
                .send(&buffer[..length])
                .and_then(|_| ahead.recv(&mut buffer));
            let _ = answered.and_then(|length| echo.send_to(&buffer[..length], from));
        }
    });
    thread::spawn(move || {
        let (mut control, _) = listener.accept().unwrap();
        let pipe = |mut from: TcpStream, mut to: TcpStream| {
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        };
        let mut server = TcpStream::connect(real).unwrap();
        pipe(control.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || {
            for data in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(real).unwrap();
                pipe(data.try_clone().unwrap(), server.try_clone().unwrap());
                pipe(server, data);
            }
        });
        loop {
            let mut reply = reply(&mut server);
            if !change(&mut reply) || control.write_all(&protocol::encode(&reply)).is_err() {
                // Keep the connection open, and send nothing more.
                thread::park();
            }
        }
    });
    address
}

fn against_relay(change: impl Fn(&mut Reply) -> bool + Send + 'static) -> Outcome {
    run(&against(changing_relay(change), Scenario::of_flows(1, 1, &[0]))).unwrap()
}

#[test]
fn impossible_results_of_a_server_are_left_out_and_the_rest_is_kept() {
    let outcome = against_relay(|reply| {
        if let Reply::Flow {
            direction: Direction::Upload,
            seen,
            ..
        } = reply
        {
            for sample in &mut seen.samples {
                sample.bytes += 1 << 40;
            }
        }
        true
    });
    assert!(
        matches!(outcome.failure, Some(Error::Implausible { .. })),
        "{:?}",
        outcome.failure
    );
    let result = outcome.result;
    assert!(Verdict::of(&result).grade.is_none() && result.summary.download_mbit > Some(0.0));
    assert!(
        result.summary.upload_mbit < Some(1e6),
        "{:?}",
        result.summary.upload_mbit
    );
}

#[test]
fn a_server_without_results_is_reported_and_our_results_are_kept() {
    let outcome = against_relay(|reply| !matches!(reply, Reply::Flow { .. }));
    let failure = outcome.failure.expect("results are missing");
    assert!(failure.to_string().contains("no results within 9 s"), "{failure}");
    assert!(outcome.result.summary.download_mbit > Some(0.0));
    assert!(outcome.result.probes[0].samples.len() > 40);
}

// Malicious clients.

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    // With a timeout, a broken server fails the test instead of blocking it.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Reads exactly one reply.
fn reply(stream: &mut TcpStream) -> Reply {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame).expect("the server replies");
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    frame.resize(4 + length, 0);
    stream.read_exact(&mut frame[4..]).unwrap();
    protocol::decode(&frame, MAX_REPLY).unwrap().unwrap().0
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
fn invalid_messages_are_refused_and_the_server_goes_on() {
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
fn a_test_in_turn_loads_one_direction_then_the_other_then_both() {
    let mut test = against(
        serve(Ipv6Addr::LOCALHOST.into(), 1),
        Scenario::of_flows(2, 1, &[0]),
    );
    test.settings.load_ms = 6000;
    test.settings.load_order = LoadOrder::InTurn;
    let result = complete(&test);
    assert_eq!(result.flows.len(), 3, "the connections of a flow are one flow");
    let names: Vec<_> = result.summary.phases.iter().map(PhaseFigures::name).collect();
    assert_eq!(names, ["idle", "download", "upload", "both", "idle"]);
    // Half a second at the beginning of each phase is left out, because the last bytes of the phase before it may still arrive, and a
    // tenth at its end, because the clocks of client and server may differ by some milliseconds. A machine under load may delay the
    // report of some samples, whose bytes are then spread over a longer interval.
    for flow in &result.flows {
        let rates = [0.0, 2000.0, 4000.0].map(|from| flow.mbit_between(from + 500.0, from + 1900.0));
        let highest = rates.into_iter().fold(0.0, f64::max);
        let active = rates.map(|rate| rate > highest / 20.0);
        let expected = match flow.direction {
            Direction::Download => [true, false, true],
            Direction::Upload => [false, true, true],
        };
        assert_eq!(active, expected, "{}", flow.name);
        assert!(flow.totals.is_some_and(|t| t.bytes_sent > 0), "{}", flow.name);
        let rises = |counter: fn(&TcpSample) -> Option<u64>| flow.sender.is_sorted_by_key(counter);
        assert!(
            rises(|s| s.retransmits) && rises(|s| s.delivered),
            "{}",
            flow.name
        );
    }
}

#[test]
fn a_wrong_token_attaches_nothing() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 4);
    let (_control, token) = open_test(server, 1);
    let attach = |token, flow| {
        let mut stream = connect(server);
        let hello = Hello::Data {
            token,
            direction: Direction::Download,
            flow,
            dscp: 0,
            congestion: None,
            window: None,
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
fn a_probe_needs_a_token_and_its_answer_is_no_larger() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 4);
    let (_control, token) = open_test(server, 1);
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    udp.connect(server).unwrap();
    let good = Probe {
        token,
        series: 1,
        tos: 0xb8,
        sequence: 5,
        echo: Echo::default(),
    };
    let wrong_token = Probe {
        token: Token([7; 16]),
        ..good
    };
    let no_series = Probe {
        series: protocol::MAX_PROBES,
        ..good
    };
    udp.send(&wrong_token.encode()).unwrap();
    udp.send(&no_series.encode()).unwrap();
    udp.send(&good.encode()[..Probe::LENGTH - 1]).unwrap();
    udp.send(&[0; 1200]).unwrap();
    let mut long = good.encode().to_vec();
    long.resize(500, 0);
    udp.send(&long).unwrap();
    let mut buffer = [0; 2048];
    // A process that was stopped and continued meanwhile gets EINTR from a socket with a time limit (signal(7)).
    let (length, _) = rustix::io::retry_on_intr(|| {
        rustix::net::recv(&udp, &mut buffer[..], rustix::net::RecvFlags::empty())
    })
    .unwrap();
    assert_eq!(length, 500);
    let answer = Probe::decode(&buffer[..length]).unwrap();
    assert_eq!(
        Probe {
            echo: Echo::default(),
            ..answer
        },
        good
    );
    assert!(answer.echo.arrived_ns > 0 && answer.echo.window == 1);
}

#[test]
fn a_silent_client_and_one_that_is_gone_do_not_block_others() {
    let server = serve(Ipv4Addr::LOCALHOST.into(), 1);
    let _silent = connect(server);
    let (first, _) = open_test(server, 1);
    let mut second = connect(server);
    second.write_all(&control(protocol::VERSION, 1)).unwrap();
    assert!(refusal(&mut second).contains("busy"));
    drop(first);
    // The server accepts another test as soon as it has noticed that the first client is gone.
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
