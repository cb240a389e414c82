//! A test against plain URLs, for users without a server of their own beyond the line. It downloads and uploads files by HTTP
//! while it sends probes to a reflector.
//!
//! Web servers report nothing. The kernel of the client therefore counts the bytes: those received, and those that the other end has
//! acknowledged. They are TCP payload, of which TLS is a few thousandths.

mod route;
mod transfer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sqm_core::direction::Direction;
use tokio::runtime::Runtime;

pub use self::route::Site;
use self::route::{Route, find};
use self::transfer::Transfer;
use super::connect::check_congestion;
use super::host_metrics::Recorder;
use super::outcome::phases;
use super::timing::{FIRST_PROBE_TIMEOUT, RateMeter, SETUP, SILENCE, SPARE, STOP_TIMEOUT, TICK};
use super::types::{Hooks, Outcome, Progress, Stage, check_times};
use crate::calendar::rfc3339;
use crate::deadline::Deadline;
use crate::http::{Tasks, port};
use crate::load::millis;
use crate::probe::{Connect, Dns, Finished, Icmp, ProbeSocket, Prober};
use crate::protocol::{MAX_FLOWS, Seen};
use crate::result::{Finding, Flow, Meta, ProbeKind, ProbeSeries, Sample, Settings, TestResult};
use crate::scenario::Scenario;
use crate::{Error, checks, foreign, socket};

/// The time between two samples of a flow.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// `TCP_INFO` is kept with every second sample.
const SAMPLES_PER_INFO: u64 = 2;
/// The port of DNS, to which UDP probes go.
const DNS: u16 = 53;

/// Runs a test and waits for its result. DSCP and segment size in `settings` have no effect: the sender sets them, and the
/// sender of a download is a web server.
///
/// An error before the load begins is returned. After that, the outcome holds the error and what was measured until then.
pub fn run(
    site: &Site,
    settings: &Settings,
    title: Option<&str>,
    hooks: Hooks<'_>,
) -> Result<Outcome, Error> {
    check(site, settings)?;
    if let Some(name) = &settings.congestion {
        check_congestion(name)?;
    }
    let tasks = Tasks::new()?;
    let Hooks {
        progress,
        stop,
        gauges,
    } = hooks;
    let deadline = Instant::now() + length(settings) + SPARE;
    let route = find(site, &tasks, &Deadline::new(stop, SETUP))?;
    let recorder = Recorder::start(route.local, gauges);
    let mut running = Running::open(site, settings, route, deadline)?;
    let stopped = || stop.load(Ordering::Acquire);
    let mut report = |stage, running: &Running<'_>| progress(&running.progress(stage));
    running.idle(&stopped, &mut report)?;
    running.start(tasks.runtime());
    let began = SystemTime::now();
    running.load(&stopped, &mut report);
    // Dropping the tasks ends every transfer.
    drop(tasks);
    running.after(&stopped, &mut report);
    report(Stage::Collect, &running);
    Ok(running.outcome(title, began, recorder))
}

fn check(site: &Site, settings: &Settings) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Settings(text));
    if site.download.is_none() && site.upload.is_none() {
        return wrong("no URL to load the line with".to_owned());
    }
    let urls = [
        (Direction::Download, &site.download, settings.down),
        (Direction::Upload, &site.upload, settings.up),
    ];
    for (direction, url, flows) in urls {
        if url.is_some() != (flows > 0) || flows > MAX_FLOWS {
            return wrong(format!(
                "a URL for {}s takes 1 to {MAX_FLOWS} of them at once, not {flows}",
                direction.name()
            ));
        }
        let uri = url.as_ref().and_then(|url| Some((url, url.parse().ok()?)));
        if let Some((url, Err(reason))) = uri.map(|(url, uri)| (url, port(&uri))) {
            return wrong(format!("cannot use {}: {reason}", foreign::printable(url)));
        }
    }
    check_times(settings)
}

/// Duration of all phases together.
fn length(settings: &Settings) -> Duration {
    Duration::from_millis(settings.idle_ms + settings.load_ms + settings.after_ms)
}

/// A running test.
struct Running<'a> {
    site: &'a Site,
    settings: &'a Settings,
    route: Route,
    scenario: Scenario,
    probes: Vec<(usize, Prober)>,
    /// Series of probes that are not measured, with the reason.
    not_measured: Vec<(String, String)>,
    transfers: Vec<Arc<Transfer>>,
    seen: Vec<Seen>,
    begin: Instant,
    start: Instant,
    end: Instant,
    /// The test is over at this moment, even if probes are missing.
    deadline: Instant,
    down: RateMeter,
    up: RateMeter,
    is_loaded: bool,
    failure: Option<Error>,
}

type Report<'r, 'a> = &'r mut dyn FnMut(Stage, &Running<'a>);

impl<'a> Running<'a> {
    fn open(site: &'a Site, settings: &'a Settings, route: Route, deadline: Instant) -> Result<Self, Error> {
        let scenario = Scenario::of_urls(settings.down, settings.up, settings.probe_interval_ms);
        let begin = Instant::now();
        let until = begin + length(settings) + FIRST_PROBE_TIMEOUT;
        let (mut probes, mut not_measured) = (Vec::new(), Vec::new());
        for (index, plan) in scenario.probes.iter().enumerate() {
            let interval = Duration::from_millis(plan.interval_ms.unwrap_or(settings.probe_interval_ms));
            let start = begin + interval * index as u32 / scenario.probes.len() as u32;
            match probe_socket(plan.kind, route.reflector) {
                Ok(socket) => {
                    let prober = Prober::start(socket, interval, start, until)
                        .map_err(|e| Error::system("send probes", e))?;
                    probes.push((index, prober));
                }
                Err(reason) => not_measured.push((plan.name.clone(), reason.to_string())),
            }
        }
        Ok(Self {
            site,
            settings,
            route,
            scenario,
            probes,
            not_measured,
            transfers: Vec::new(),
            seen: Vec::new(),
            begin,
            start: begin,
            end: begin,
            deadline,
            down: RateMeter::default(),
            up: RateMeter::default(),
            is_loaded: false,
            failure: None,
        })
    }

    /// The idle phase. Gives up the kinds of probes that the reflector does not answer in it.
    fn idle(&mut self, stopped: &dyn Fn() -> bool, report: Report<'_, 'a>) -> Result<(), Error> {
        let end = self.begin + Duration::from_millis(self.settings.idle_ms);
        let latest = end + FIRST_PROBE_TIMEOUT;
        let mut next = self.begin;
        while next < end || (next < latest && self.probes.iter().all(|(_, p)| p.answers() == 0)) {
            report(Stage::Idle, self);
            if stopped() {
                return Err(Error::Interrupted { at_s: 0.0 });
            }
            next += TICK.min(end.saturating_duration_since(next).max(Duration::from_millis(50)));
            socket::sleep_until(next);
        }
        let (answered, silent): (Vec<_>, _) = std::mem::take(&mut self.probes)
            .into_iter()
            .partition(|(_, prober)| prober.answers() > 0);
        self.probes = answered;
        for (index, _) in silent {
            let name = self.scenario.probes[index].name.clone();
            self.not_measured
                .push((name, "no answer on the idle line".to_owned()));
        }
        if self.probes.is_empty() {
            return Err(Error::NoReflector {
                reflector: self.route.reflector.to_string(),
            });
        }
        Ok(())
    }

    fn start(&mut self, runtime: &Runtime) {
        self.start = Instant::now();
        self.end = self.start + Duration::from_millis(self.settings.load_ms);
        let until = self.end + Duration::from_millis(self.settings.after_ms);
        self.probe_until(until);
        for flow in &self.scenario.flows {
            let place = match flow.direction {
                Direction::Download => &self.route.download,
                Direction::Upload => &self.route.upload,
            };
            let place = place.clone().expect("flows need a URL");
            let congestion = self.settings.congestion.clone();
            let transfer = Transfer::new(flow.direction, place, self.route.tls.clone(), congestion);
            let transfer = Arc::new(transfer);
            let phases = self.settings.phases().into_iter();
            let loaded = phases.filter(|phase| phase.loaded.contains(&flow.direction));
            let moment = |ms: f64| self.start + Duration::from_micros((ms * 1000.0) as u64);
            let windows = loaded.map(|phase| moment(phase.from_ms)..moment(phase.to_ms));
            runtime.spawn(transfer.clone().run_within(windows.collect()));
            self.transfers.push(transfer);
        }
        self.seen = vec![Seen::default(); self.transfers.len()];
        self.is_loaded = true;
    }

    /// The load: takes samples until it is over.
    fn load(&mut self, stopped: &dyn Fn() -> bool, report: Report<'_, 'a>) {
        let (planned, mut next, mut round) = (self.end, self.start, 0);
        let mut counted = vec![0; self.transfers.len()];
        let (mut signs, mut alive) = (0, Instant::now());
        while next < planned && self.failure.is_none() {
            next = (next + SAMPLE_INTERVAL).min(planned);
            socket::sleep_until(next);
            let is_full = round % SAMPLES_PER_INFO == 0;
            self.sample(&mut counted, is_full);
            round += 1;
            if is_full {
                report(Stage::Load, self);
            }
            if stopped() {
                let at_s = self.start.elapsed().as_secs_f64();
                self.failure = Some(Error::Interrupted { at_s });
                self.end_soon();
            }
            let newest = counted.iter().sum();
            if newest > signs {
                (signs, alive) = (newest, Instant::now());
            } else if alive.elapsed() > SILENCE {
                self.failure = Some(self.silence());
            }
            self.failure = self.failure.take().or_else(|| self.refusal());
        }
        self.is_loaded = false;
        if self.failure.is_some() {
            self.end = Instant::now();
            self.probe_until(self.end);
        }
    }

    fn sample(&mut self, counted: &mut [u64], is_full: bool) {
        let t_ms = millis(self.start.elapsed());
        let (mut down, mut up) = (0, 0);
        for ((transfer, seen), counted) in self.transfers.iter().zip(&mut self.seen).zip(counted) {
            let (arrived, info) = transfer.look();
            let total = arrived.whole.max(*counted);
            match transfer.direction {
                Direction::Download => down += arrived.all,
                Direction::Upload => up += arrived.all,
            }
            seen.samples.push(Sample {
                t_ms,
                bytes: total - *counted,
            });
            *counted = total;
            let Some(info) = info.filter(|_| is_full) else {
                continue;
            };
            seen.ecn = Some(info.ecn);
            match transfer.direction {
                Direction::Download => seen.tcp.push(info.receiver_sample(t_ms)),
                Direction::Upload => {
                    seen.mss = Some(info.mss);
                    seen.tcp.push(info.sender_sample(t_ms));
                    seen.totals = Some(info.totals());
                }
            }
        }
        if is_full {
            self.down.note(self.start.elapsed(), down);
            self.up.note(self.start.elapsed(), up);
        }
    }

    /// The error for a load on which no data moves.
    fn silence(&self) -> Error {
        let failure = self.transfers.iter().find_map(|transfer| transfer.failure());
        let failed = self.transfers.iter().find(|t| t.failure().is_some());
        let url = self.url(failed.unwrap_or(&self.transfers[0]).direction);
        let reason = failure.unwrap_or_else(|| format!("no data moved for {} s", SILENCE.as_secs()));
        Error::Url {
            url,
            reason: std::io::Error::other(reason),
        }
    }

    /// The error for a server that refuses the requests.
    fn refusal(&self) -> Option<Error> {
        let refused = self.transfers.iter().find(|transfer| transfer.is_refused())?;
        Some(Error::Url {
            url: self.url(refused.direction),
            reason: std::io::Error::other(refused.failure()?),
        })
    }

    fn url(&self, direction: Direction) -> String {
        let url = match direction {
            Direction::Download => &self.site.download,
            Direction::Upload => &self.site.upload,
        };
        url.clone().unwrap_or_default()
    }

    /// The idle phase after the load.
    fn after(&mut self, stopped: &dyn Fn() -> bool, report: Report<'_, 'a>) {
        let end = self.end + Duration::from_millis(self.settings.after_ms);
        let mut next = self.end;
        while next < end && self.failure.is_none() {
            next = (next + TICK).min(end);
            socket::sleep_until(next);
            report(Stage::After, self);
            if stopped() {
                self.end_soon();
                self.probe_until(Instant::now());
                return;
            }
        }
    }

    /// Shortens the deadline after the user has ended the test.
    fn end_soon(&mut self) {
        self.deadline = self.deadline.min(Instant::now() + STOP_TIMEOUT);
    }

    fn probe_until(&self, until: Instant) {
        for (_, prober) in &self.probes {
            prober.set_until(until);
        }
    }

    fn progress(&self, stage: Stage) -> Progress {
        let elapsed = self.begin.elapsed();
        let all = length(self.settings);
        Progress {
            stage,
            elapsed,
            left: all.saturating_sub(elapsed),
            download_mbit: if self.is_loaded { self.down.mbit } else { 0.0 },
            upload_mbit: if self.is_loaded { self.up.mbit } else { 0.0 },
            round_trips: self.round_trips(),
            rtt: self.probes.iter().find_map(|(_, prober)| prober.newest()),
        }
    }

    /// New round trips, of the kind of the headline figures. Takes those of the other kinds, too, so that none pile up.
    fn round_trips(&self) -> Vec<Duration> {
        let kind = |index: usize| self.scenario.probes[index].kind;
        let answered = self.probes.iter().filter(|(_, prober)| prober.answers() > 0);
        let main = answered.map(|(index, _)| kind(*index)).min();
        let probes = self.probes.iter();
        let recent = probes.map(|(index, prober)| (kind(*index), prober.take_recent()));
        recent
            .filter(|(kind, _)| Some(*kind) == main)
            .flat_map(|(_, recent)| recent)
            .collect()
    }

    fn outcome(mut self, title: Option<&str>, began: SystemTime, recorder: Recorder) -> Outcome {
        let start = self.start;
        let load_ms = millis(self.end.saturating_duration_since(start));
        let probes = std::mem::take(&mut self.probes).into_iter();
        let probes = probes
            .map(|(index, prober)| self.series(index, &prober.finish(start, self.deadline)))
            .collect();
        let failure = self.failure.take();
        let meta = self.meta(title, began, failure.as_ref());
        let phases = phases(&meta, load_ms, failure.is_some());
        let mut result = TestResult::new(meta, phases, self.flows(), probes);
        result.evidence = recorder.finish(start);
        result.findings = checks::run_findings(&result, None);
        result
            .findings
            .extend(self.short_files(result.summary.idle_ms.unwrap_or_default()));
        Outcome { result, failure }
    }

    fn series(&self, index: usize, finished: &Finished) -> ProbeSeries {
        let plan = &self.scenario.probes[index];
        let interval_ms = plan.interval_ms.unwrap_or(self.settings.probe_interval_ms);
        ProbeSeries {
            name: plan.name.clone(),
            kind: plan.kind,
            interval_ms: interval_ms as f64,
            samples: finished.probes(None),
            ..ProbeSeries::default()
        }
    }

    fn flows(&mut self) -> Vec<Flow> {
        let seen = std::mem::take(&mut self.seen);
        let flows = self.scenario.flows.iter().zip(&self.transfers).zip(seen);
        flows
            .map(|((plan, transfer), seen)| {
                let (sender, receiver) = match plan.direction {
                    Direction::Download => (Vec::new(), seen.tcp),
                    Direction::Upload => (seen.tcp, Vec::new()),
                };
                Flow {
                    congestion: transfer.congestion(),
                    ecn: seen.ecn,
                    mss: seen.mss,
                    samples: seen.samples,
                    sender,
                    receiver,
                    totals: seen.totals,
                    ..Flow::new(&plan.name, plan.direction)
                }
            })
            .collect()
    }

    fn meta(&self, title: Option<&str>, began: SystemTime, failure: Option<&Error>) -> Meta {
        let place = self.route.download.as_ref().or(self.route.upload.as_ref());
        let host = place.and_then(|place| place.uri.host()).unwrap_or_default();
        let mut meta = Meta {
            test: self.scenario.test.clone(),
            title: title.map(str::to_owned),
            time: rfc3339(began),
            start_unix: began.duration_since(UNIX_EPOCH).ok().map(|t| t.as_secs_f64()),
            host: host.to_owned(),
            local_host: socket::host_name(),
            local: self.route.local.to_string(),
            remote: place.map(|place| place.address.to_string()).unwrap_or_default(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: socket::kernel_release(),
            settings: self.settings.clone(),
            partial: failure.map(ToString::to_string),
            ..Meta::default()
        };
        let mut set = |name: &str, value: String| meta.parameters.insert(name.to_owned(), value);
        for (name, url) in [
            ("download URL", &self.site.download),
            ("upload URL", &self.site.upload),
        ] {
            if let Some(url) = url {
                set(name, url.clone());
            }
        }
        set("reflector", self.route.reflector.to_string());
        for (name, reason) in &self.not_measured {
            set(&format!("not measured: {name}"), reason.clone());
        }
        meta
    }

    fn short_files(&self, round_trip_ms: f64) -> Option<Finding> {
        let worst = self.transfers.iter().max_by_key(|transfer| transfer.requests())?;
        let load = self.end.saturating_duration_since(self.start);
        checks::short_files(
            &self.url(worst.direction),
            worst.requests(),
            round_trip_ms,
            millis(load),
        )
    }
}

/// Opens the socket of a kind of probes.
fn probe_socket(kind: ProbeKind, reflector: SocketAddr) -> std::io::Result<Box<dyn ProbeSocket>> {
    Ok(match kind {
        ProbeKind::Icmp => Box::new(Icmp::open(reflector.ip(), 0)?),
        ProbeKind::Tcp | ProbeKind::Http => Box::new(Connect::new(reflector, 0)),
        ProbeKind::Udp | ProbeKind::Voip => Box::new(Dns::open(SocketAddr::new(reflector.ip(), DNS))?),
    })
}
