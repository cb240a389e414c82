//! Tests against plain URLs: those of our own server, by TLS, and those of a small server that misbehaves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;

use sqm_core::direction::Direction;
use sqm_measure::Error;
use sqm_measure::client::web::{self, Site};
use sqm_measure::client::{Hooks, Outcome};
use sqm_measure::result::{LoadOrder, ProbeKind, Settings};
use sqm_measure::server::{Config, Server};

fn settings(down: u32, up: u32) -> Settings {
    Settings {
        down,
        up,
        idle_ms: 1000,
        load_ms: 2000,
        after_ms: 500,
        settle_ms: 500,
        probe_interval_ms: 50,
        congestion: None,
        ..Settings::default()
    }
}

fn run(site: &Site, settings: &Settings) -> Result<Outcome, Error> {
    let hooks = Hooks {
        progress: &mut |_| {},
        stop: &AtomicBool::new(false),
        gauges: None,
    };
    web::run(site, settings, Some("a title"), hooks)
}

fn https(ip: std::net::IpAddr) -> SocketAddr {
    let config = Config {
        listen: Some(SocketAddr::new(ip, 0)),
        https: true,
        ..Config::default()
    };
    let server = Server::bind(config, |_| {}).unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || server.run());
    address
}

/// A server that answers every request with these bytes. It reads and drops the body of the request.
fn http(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || serve(stream, &answer));
        }
    });
    address
}

fn serve(stream: TcpStream, answer: &dyn Fn(&str) -> Vec<u8>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut request = String::new();
        reader.read_line(&mut request).ok().filter(|n| *n > 0)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
            if line == "\r\n" {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        stream.write_all(&answer(&request)).ok()?;
    }
}

fn body(length: usize) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    bytes.resize(bytes.len() + length, b'x');
    bytes
}

#[test]
fn both_directions_over_tls_with_probes() {
    for ip in [
        Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::from(Ipv6Addr::LOCALHOST),
    ] {
        let address = https(ip);
        let site = Site {
            download: Some(format!("https://{address}/large")),
            upload: Some(format!("https://{address}/upload")),
            ..Site::default()
        };
        let Outcome { result, failure } = run(&site, &settings(2, 1)).unwrap();
        assert!(failure.is_none(), "{failure:?}");
        assert!(result.summary.download_mbit > Some(1.0) && result.summary.upload_mbit > Some(1.0));
        assert!(result.summary.idle_ms.is_some() && result.summary.latency_median_ms.is_some());
        assert_eq!(result.flows.len(), 3);
        let up = result.flows(Direction::Upload).next().unwrap();
        assert!(!up.congestion.is_empty() && up.sender.iter().any(|s| s.cwnd > Some(0.0)));
        assert!(up.totals.unwrap().bytes_sent > 0);
        assert_eq!(up.samples.len(), 20);
        // TCP answers. There is no name server here, and its missing answers do not count as losses.
        assert!(result.probes.iter().any(|series| series.kind == ProbeKind::Tcp));
        assert!(result.probes.iter().all(|series| series.kind != ProbeKind::Udp));
        assert!(
            result
                .meta
                .parameters
                .contains_key("not measured: Ping (ms) UDP DNS")
        );
        assert_eq!(result.summary.probes_lost, 0);
        assert!(
            result
                .findings
                .iter()
                .all(|finding| finding.code != "short_files")
        );
    }
}

#[test]
fn urls_are_loaded_one_direction_after_the_other_and_then_both() {
    let address = https(Ipv4Addr::LOCALHOST.into());
    let site = Site {
        download: Some(format!("https://{address}/large")),
        upload: Some(format!("https://{address}/upload")),
        ..Site::default()
    };
    let settings = Settings {
        load_ms: 6000,
        load_order: LoadOrder::InTurn,
        ..settings(1, 1)
    };
    let Outcome { result, failure } = run(&site, &settings).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    for flow in &result.flows {
        let carries = |phase: i32| {
            let from = f64::from(phase) * 2000.0;
            flow.mbit_between(from + 500.0, from + 2000.0) > 1.0
        };
        let expected = match flow.direction {
            Direction::Download => [true, false, true],
            Direction::Upload => [false, true, true],
        };
        assert_eq!([0, 1, 2].map(carries), expected, "{}", flow.name);
    }
}

#[test]
fn a_small_file_is_downloaded_again_and_again() {
    let address = http(|_| body(100_000));
    let site = Site {
        download: Some(format!("http://{address}/small?x=1")),
        ..Site::default()
    };
    let result = run(&site, &settings(1, 0)).unwrap().result;
    // A single file would be 0.4 Mbit/s over the two seconds of the load.
    assert!(result.summary.download_mbit > Some(1.0));
}

#[test]
fn a_redirect_is_followed() {
    let target = http(|request| {
        assert!(request.starts_with("GET /real "), "{request}");
        body(1_000_000)
    });
    let first = http(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: http://{target}/real\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    });
    let site = Site {
        download: Some(format!("http://{first}/alias")),
        ..Site::default()
    };
    let result = run(&site, &settings(1, 0)).unwrap().result;
    assert!(result.summary.download_mbit > Some(0.0));
    let circle = http(|_| b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n".to_vec());
    let site = Site {
        download: Some(format!("http://{circle}/")),
        ..Site::default()
    };
    assert!(
        run(&site, &settings(1, 0))
            .unwrap_err()
            .to_string()
            .contains("redirects")
    );
}

#[test]
fn a_server_that_refuses_requests_ends_the_test_with_its_status() {
    let address = http(|request| {
        let answer = if request.starts_with("GET") {
            "404 Not Found"
        } else {
            "413 Content Too Large"
        };
        format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let url = Some(format!("http://{address}/x"));
    let site = Site {
        download: url.clone(),
        ..Site::default()
    };
    let error = run(&site, &settings(1, 0)).unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("/x"), "{error}");
    let site = Site {
        upload: url,
        ..Site::default()
    };
    let Outcome { result, failure } = run(&site, &settings(0, 1)).unwrap();
    let failure = failure.unwrap().to_string();
    assert!(failure.contains("413"), "{failure}");
    assert!(result.meta.partial.is_some());
}

#[test]
fn invalid_urls_are_refused_before_the_test() {
    for (url, word) in [
        ("ftp://127.0.0.1/x", "https://"),
        ("https:///x", "URL"),
        ("http://127.0.0.1:1/x", "refused"),
        ("http://no-such-host.invalid/x", "no-such-host.invalid"),
    ] {
        let site = Site {
            download: Some(url.to_owned()),
            ..Site::default()
        };
        let error = run(&site, &settings(1, 0)).unwrap_err().to_string();
        assert!(error.contains(url) && error.contains(word), "{error}");
    }
    // The self-signed certificate of sqm serve does not pass.
    let address = https(Ipv4Addr::LOCALHOST.into());
    let site = Site {
        download: Some(format!("https://{address}/large")),
        verify: true,
        ..Site::default()
    };
    let error = run(&site, &settings(1, 0)).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn a_reflector_may_have_its_own_port() {
    let address = http(|_| body(1_000_000));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut site = Site {
        download: Some(format!("http://{address}/x")),
        reflector: Some(listener.local_addr().unwrap().to_string()),
        ..Site::default()
    };
    let result = run(&site, &settings(1, 0)).unwrap().result;
    assert!(result.probes.iter().any(|series| series.kind == ProbeKind::Tcp));
    assert_eq!(
        result.meta.parameters["reflector"],
        *site.reflector.as_ref().unwrap()
    );
    site.reflector = Some("127.0.0.1:http".to_owned());
    let error = run(&site, &settings(1, 0)).unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error}");
}
