//! `sqm serve` under attack, over the loopback interface: it keeps running, its memory stays small, and an honest
//! client's test succeeds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqm_measure::protocol::{self, Hello, MAX_REPLY, MAX_REQUEST, Probe, Reply, Request, Token};

/// Limit for the resident memory of the server, kB.
const MAX_MEMORY_KB: u64 = 64 << 10;

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let mut child = sqm()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let port = line.split("127.0.0.1:").nth(1).unwrap();
        let port = port.split(' ').next().unwrap().parse().unwrap();
        // The server must not block on its standard error, which is read and ignored.
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, port }
    }

    /// Peak memory of the server (`VmHWM`), kB.
    fn peak_memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sqm() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.stdin(Stdio::null());
    command
}

/// Runs a whole test as an honest client, which must succeed.
fn honest_test(port: u16) -> Value {
    let output = sqm()
        .args(["test", "127.0.0.1", "--port", &port.to_string(), "--json", "-"])
        .args([
            "--together",
            "--duration",
            "2s",
            "--idle",
            "1s",
            "--settle",
            "500ms",
            "--up",
            "1",
            "--down",
            "1",
        ])
        .args(["--congestion", "system", "--quiet"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An attack that goes on until it is stopped.
struct Attack {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Attack {
    /// Repeats `blow`, which returns how often it struck.
    fn start(mut blow: impl FnMut() -> u64 + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let thread = thread::spawn(move || {
            let mut blows = 0;
            while !theirs.load(Ordering::Acquire) {
                blows += blow();
            }
            blows
        });
        Self { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Runs an honest test during an attack, and checks the server afterwards.
fn withstand(name: &str, blow: impl Fn(u16) -> Box<dyn FnMut() -> u64 + Send>) {
    let mut server = Server::start();
    let attack = Attack::start(blow(server.port));
    let result = honest_test(server.port);
    let blows = attack.stop();
    assert!(blows > 0, "{name} did nothing");
    let summary = &result["summary"];
    assert!(summary["download_mbit"].as_f64().unwrap() > 0.0, "{name}");
    assert!(summary["upload_mbit"].as_f64().unwrap() > 0.0, "{name}");
    // A flood of datagrams shares the socket's buffer with the probes, which may lose one in fifty.
    let count = |what: &str| summary[what].as_u64().unwrap();
    let (sent, lost) = (count("probes_sent"), count("probes_lost"));
    assert!(lost * 50 <= sent, "{name}: {lost} of {sent} probes lost");
    assert!(server.is_alive(), "{name}");
    let peak = server.peak_memory_kb();
    println!("{name}: {blows} blows, at most {peak} kB");
    assert!(peak < MAX_MEMORY_KB, "{name}: {peak} kB");
}

/// xorshift64 (Marsaglia 2003): reproducible noise.
fn noise(state: &mut u64, bytes: &mut [u8]) {
    for byte in bytes {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *byte = *state as u8;
    }
}

fn connect(port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(5)).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    Some(stream)
}

#[test]
fn a_thousand_half_open_connections() {
    withstand("half-open", |port| {
        let mut open = Vec::new();
        Box::new(move || {
            if open.len() >= 1000 {
                // Once a thousand are open, close the oldest each time a new one is opened, for as long as the test
                // lasts.
                open.remove(0);
                thread::sleep(Duration::from_millis(1));
            }
            open.extend(connect(port));
            1
        })
    });
}

#[test]
fn slow_senders() {
    withstand("slow-loris", |port| {
        let hello = protocol::encode(&Hello::Control {
            version: protocol::VERSION,
            down: 1,
            up: 0,
            load_ms: 1000,
        });
        let mut open: Vec<(TcpStream, usize)> = Vec::new();
        Box::new(move || {
            if open.len() < 200 {
                open.extend(connect(port).map(|stream| (stream, 0)));
            }
            // One byte on each connection, but never the last one of the message.
            for (stream, sent) in &mut open {
                let _ = stream.write(&hello[*sent..=*sent]);
                *sent = (*sent + 1).min(hello.len() - 2);
            }
            thread::sleep(Duration::from_millis(5));
            1
        })
    });
}

#[test]
fn random_bytes_on_both_ports() {
    withstand("random bytes", |port| {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(("127.0.0.1", port)).unwrap();
        let (mut state, mut bytes) = (1, [0; 1400]);
        Box::new(move || {
            noise(&mut state, &mut bytes);
            if let Some(mut stream) = connect(port) {
                let _ = stream.write_all(&bytes);
            }
            // A burst this small leaves room in the socket's buffer for probes while the server waits for a
            // processor.
            for _ in 0..5 {
                noise(&mut state, &mut bytes);
                let length = usize::from(bytes[0]) * 5;
                let _ = udp.send(&bytes[..length]);
            }
            thread::sleep(Duration::from_millis(1));
            6
        })
    });
}

#[test]
fn oversized_frames_and_wrong_tokens() {
    withstand("frames", |port| {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(("127.0.0.1", port)).unwrap();
        let mut state = 1;
        Box::new(move || {
            let mut token = Token([0; 16]);
            noise(&mut state, &mut token.0);
            if let Some(mut stream) = connect(port) {
                let announced = (MAX_REQUEST as u32 + u32::from(token.0[0]) * 100_000).to_be_bytes();
                let _ = stream.write_all(&announced);
                let _ = stream.write_all(&[b' '; 8192]);
            }
            let hello = Hello::Data {
                token,
                direction: sqm_core::direction::Direction::Download,
                flow: 0,
                dscp: 0,
                congestion: None,
                window: None,
            };
            if let Some(mut stream) = connect(port) {
                let _ = stream.write_all(&protocol::encode(&hello));
            }
            let probe = Probe {
                token,
                series: 0,
                tos: 0,
                sequence: 0,
                echo: protocol::Echo::default(),
            };
            let _ = udp.send(&probe.encode());
            thread::sleep(Duration::from_millis(1));
            3
        })
    });
}

#[test]
fn clients_that_vanish_in_the_middle() {
    withstand("vanishing clients", |port| {
        Box::new(move || {
            let mut client = sqm()
                .args(["test", "127.0.0.1", "--port", &port.to_string(), "--quiet"])
                .args([
                    "--idle",
                    "100ms",
                    "--up",
                    "2",
                    "--down",
                    "2",
                    "--congestion",
                    "system",
                ])
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(700));
            client.kill().unwrap();
            client.wait().unwrap();
            1
        })
    });
}

/// Reads the next reply on a control connection.
fn reply(stream: &mut TcpStream) -> Option<Reply> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = length.to_vec();
    frame.resize(4 + u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut frame[4..]).ok()?;
    protocol::decode(&frame, MAX_REPLY).ok()?.map(|(reply, _)| reply)
}

fn hello(load_ms: u64) -> Vec<u8> {
    protocol::encode(&Hello::Control {
        version: protocol::VERSION,
        down: 0,
        up: 0,
        load_ms,
    })
}

#[test]
fn a_client_that_sends_requests_after_its_test_loses_its_place() {
    let server = Server::start();
    let mut stream = connect(server.port).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&hello(100)).unwrap();
    assert!(matches!(reply(&mut stream), Some(Reply::Welcome { .. })));
    stream.write_all(&protocol::encode(&Request::Start)).unwrap();
    while !matches!(reply(&mut stream).expect("a reply"), Reply::Done { .. }) {}
    // An open connection occupies one of the few places that an address has.
    let began = Instant::now();
    while stream.write_all(&protocol::encode(&Request::Stop)).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30), "it may go on for ever");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Two addresses occupy all places, and all but one of their clients are idle.
#[test]
fn a_client_that_only_waits_is_evicted_for_one_that_tests() {
    let server = Server::start();
    let enter = |from: &str, load_ms: u64| -> (TcpStream, Option<Reply>) {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let address: std::net::SocketAddr = format!("{from}:0").parse().unwrap();
        socket.bind(&address.into()).unwrap();
        let to: std::net::SocketAddr = ([127, 0, 0, 1], server.port).into();
        socket.connect(&to.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(&hello(load_ms)).unwrap();
        let told = reply(&mut stream);
        (stream, told)
    };
    let is_in = |told: &Option<Reply>| matches!(told, Some(Reply::Welcome { .. }));
    let (_, told) = enter("127.0.0.2", 0);
    assert!(
        matches!(told, Some(Reply::Error { .. })),
        "a test of no length: {told:?}"
    );
    // One client sends probes, as a client does before its load.
    let (mut alive, told) = enter("127.0.0.2", 1000);
    let Some(Reply::Welcome { token, .. }) = told else {
        panic!("{told:?}");
    };
    let udp = UdpSocket::bind("127.0.0.2:0").unwrap();
    udp.connect(("127.0.0.1", server.port)).unwrap();
    let mut sequence = 0;
    let mut probe = || {
        let probe = Probe {
            token,
            series: 0,
            tos: 0,
            sequence,
            echo: protocol::Echo::default(),
        };
        sequence += 1;
        udp.send(&probe.encode()).unwrap();
    };
    let mut idle: Vec<_> = (1..8)
        .map(|n| enter(["127.0.0.2", "127.0.0.3"][n / 4], 1000))
        .collect();
    assert!(idle.iter().all(|(_, told)| is_in(told)));
    let (_, told) = enter("127.0.0.9", 1000);
    assert!(
        matches!(told, Some(Reply::Error { .. })),
        "they have just come: {told:?}"
    );
    let began = Instant::now();
    let _guest = loop {
        probe();
        let (guest, told) = enter("127.0.0.9", 1000);
        if is_in(&told) {
            break guest;
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "they may stay for ever: {told:?}"
        );
        thread::sleep(Duration::from_millis(100));
    };
    // The client that was idle longest was evicted.
    let (first, _) = &mut idle[0];
    first.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(first.read_to_end(&mut Vec::new()).unwrap(), 0);
    // The active client was not evicted.
    alive.write_all(&protocol::encode(&Request::Start)).unwrap();
    while !matches!(reply(&mut alive).expect("a reply"), Reply::Done { .. }) {}
}

#[test]
fn wrong_secrets_and_their_log_lines_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "open sesame\n").unwrap();
    let mut child = sqm()
        .args(["serve", "--listen", "127.0.0.1:0", "--secret"])
        .arg(&secret)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let port: u16 = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap();
    let guess = |secret: &str| -> Option<Reply> {
        let mut stream = connect(port)?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(&hello(1000)).ok()?;
        let Some(Reply::Challenge { nonce }) = reply(&mut stream) else {
            return None;
        };
        let mac = sqm_measure::secret::proof(secret, nonce);
        stream
            .write_all(&protocol::encode(&Request::Proof { mac }))
            .ok()?;
        reply(&mut stream)
    };
    assert!(matches!(guess("open sesame"), Some(Reply::Welcome { .. })));
    let (mut looked_at, mut turned_away) = (0, 0);
    for n in 0..300 {
        match guess(&format!("guess {n}")) {
            Some(Reply::Error { reason }) if reason.starts_with("wrong secret;") => looked_at += 1,
            Some(Reply::Error { reason }) if reason.contains("too many wrong secrets") => turned_away += 1,
            other => panic!("{other:?}"),
        }
    }
    // Eight guesses are allowed at once, and one more every 15 s.
    println!("{looked_at} guesses were looked at, {turned_away} were not");
    assert!(looked_at < 30 && turned_away > 250, "{looked_at} {turned_away}");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut log = String::new();
    lines.read_to_string(&mut log).unwrap();
    let written = log.lines().count();
    assert!((1..200).contains(&written), "{written} lines");
}

/// Sends noise to both ports for five seconds, with `SQM_NIGHTLY` for a minute. Nothing may come back, and the server
/// must serve as before afterwards.
#[test]
fn some_noise_has_no_lasting_effect() {
    let siege = Duration::from_secs(if std::env::var_os("SQM_NIGHTLY").is_some() {
        60
    } else {
        5
    });
    let mut server = Server::start();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(("127.0.0.1", server.port)).unwrap();
    udp.set_nonblocking(true).unwrap();
    let (mut state, mut bytes) = (7, [0; 1400]);
    let end = Instant::now() + siege;
    let mut sent = 0;
    while Instant::now() < end {
        noise(&mut state, &mut bytes);
        if let Some(mut stream) = connect(server.port) {
            let _ = stream.write_all(&bytes);
        }
        let _ = udp.send(&bytes[..usize::from(bytes[1]) * 5]);
        sent += 1;
        assert!(udp.recv(&mut [0; 2048]).is_err(), "noise was answered");
        thread::sleep(Duration::from_millis(2));
    }
    assert!(server.is_alive());
    let peak = server.peak_memory_kb();
    println!("noise: {sent} connections, at most {peak} kB");
    assert!(peak < MAX_MEMORY_KB, "{peak} kB");
    honest_test(server.port);
    let mut rest = Vec::new();
    let _ = connect(server.port).map(|mut s| {
        let _ = s.write_all(b"GET / HTTP/1.0\r\n\r\n");
        s.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        s.read_to_end(&mut rest)
    });
    assert!(
        String::from_utf8_lossy(&rest).contains("at most"),
        "it still says what is wrong"
    );
}
