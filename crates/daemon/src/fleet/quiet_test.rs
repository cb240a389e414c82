//! A test of the line, in a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use sqm_fleet::agent::TestEnd;
use sqm_fleet::quiet_test::QuietTest;
use sqm_measure::client::{self, Hooks, Progress, Target, Test};
use sqm_measure::result::Settings;
use sqm_measure::scenario::Scenario;

/// A test that runs. It is ended when this is dropped.
pub(super) struct RunningTest {
    stop: Arc<AtomicBool>,
    end: Receiver<TestEnd>,
}

impl RunningTest {
    /// Begins a test.
    pub(super) fn start(test: &QuietTest) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, end) = mpsc::channel();
        let (test, stop_of_thread) = (test.clone(), Arc::clone(&stop));
        std::thread::Builder::new()
            .name("quiet test".into())
            .spawn(move || {
                // Nobody waits for it if the test was dropped.
                let _ = send.send(run(&test, &stop_of_thread));
            })?;
        Ok(Self { stop, end })
    }

    /// How the test has ended; `None` while it runs.
    pub(super) fn end(&self) -> Option<TestEnd> {
        match self.end.try_recv() {
            Ok(end) => Some(end),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(TestEnd::Failed("its thread has failed".into())),
        }
    }
}

impl Drop for RunningTest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn run(test: &QuietTest, stop: &AtomicBool) -> TestEnd {
    let Some((host, port)) = test.address() else {
        return TestEnd::Failed(format!("'{}' is not HOST:PORT", test.server));
    };
    let settings = Settings {
        load_ms: u64::from(test.load_s) * 1000,
        ..Settings::default()
    };
    let wanted = Test {
        targets: vec![Target {
            host: host.into(),
            port,
            family: None,
            secret: None,
        }],
        scenario: Scenario::of_flows(settings.down, settings.up, &settings.dscp),
        settings,
        title: None,
    };
    let mut transferred = Transferred::default();
    let mut is_too_much = false;
    let mut count = |progress: &Progress| {
        if transferred.megabytes(progress) >= f64::from(test.most_mbyte) {
            is_too_much = true;
            stop.store(true, Ordering::Relaxed);
        }
    };
    let hooks = Hooks {
        progress: &mut count,
        stop,
        gauges: None,
    };
    let failed = |error: sqm_measure::Error| TestEnd::Failed(error.to_string());
    let end = match client::run(&wanted, hooks) {
        Ok(outcome) => outcome.failure.map_or(TestEnd::Done, failed),
        Err(error) => failed(error),
    };
    if is_too_much { TestEnd::TooMuch } else { end }
}

/// The traffic of both directions.
#[derive(Default)]
struct Transferred {
    megabit: f64,
    elapsed: Duration,
}

impl Transferred {
    /// The megabytes until this report.
    fn megabytes(&mut self, progress: &Progress) -> f64 {
        let span = progress.elapsed.saturating_sub(self.elapsed);
        self.elapsed = progress.elapsed;
        self.megabit += (progress.download_mbit + progress.upload_mbit) * span.as_secs_f64();
        self.megabit / 8.0
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    use sqm_fleet::daily::Daily;
    use sqm_measure::server::{Config, Server};

    use super::*;

    fn test(server: SocketAddr, most_mbyte: u32) -> QuietTest {
        QuietTest {
            server: server.to_string(),
            daily: Daily {
                from_s: 0,
                to_s: 86_400,
            },
            load_s: 300,
            most_mbyte,
        }
    }

    fn server() -> SocketAddr {
        let config = Config {
            listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
            ..Config::default()
        };
        let server = Server::bind(config, |_| {}).expect("a server");
        let address = server.local_addr().expect("its address");
        std::thread::spawn(move || server.run());
        address
    }

    #[test]
    fn a_test_ends_when_it_has_transferred_as_much_as_it_may() {
        let stop = AtomicBool::new(false);
        assert_eq!(run(&test(server(), 10), &stop), TestEnd::TooMuch);
    }

    #[test]
    fn a_test_that_nobody_waits_for_ends() {
        let mut running = RunningTest::start(&test(server(), 75_000)).expect("a thread");
        let end = std::mem::replace(&mut running.end, mpsc::channel().1);
        drop(running);
        let end = end.recv().expect("its end");
        assert!(matches!(end, TestEnd::Failed(_)), "{end:?}");
    }

    #[test]
    fn a_server_that_is_away_is_named() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        drop(listener);
        let TestEnd::Failed(why) = run(&test(address, 10), &AtomicBool::new(false)) else {
            panic!("there is no server");
        };
        let place = format!("cannot connect to 127.0.0.1 port {}", address.port());
        assert!(why.starts_with(&place), "{why}");
    }
}
