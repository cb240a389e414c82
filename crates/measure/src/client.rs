//! The near end of a test.

mod bounds;
mod connect;
mod cross_check;
mod endpoint;
mod host_metrics;
mod outcome;
pub mod web;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub use crate::scenario::Family;
pub use host_metrics::{Gauge, Gauges, interface_of};

use crate::Error;
use crate::deadline::Deadline;
use crate::load::{Load, Role};
use crate::probe::{Connect, Icmp, ProbeSocket, Prober, Udp};
use crate::protocol::{MAX_FLOWS, MAX_IDLE_MS, MAX_LOAD_MS, MAX_PROBES, Seen};
use crate::result::{Direction, ProbeKind, Settings, TAIL_MS, TestResult};
use crate::scenario::{ProbePlan, Scenario};
use crate::socket;
use endpoint::Endpoint;
use host_metrics::Recorder;

/// The load waits this much longer for the first probe if none has come back in the idle phase.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// A server from which nothing at all comes for so long, no data, no answer to a probe, no word, is gone.
const SILENCE: Duration = Duration::from_secs(8);
/// A test takes this much longer than its phases at most, whatever the servers do: to connect, and until the results are here.
const SPARE: Duration = Duration::from_millis(9500);
/// Of that, until everything is connected.
const SETUP: Duration = Duration::from_secs(8);
/// Until the results are here after the load.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(9);
/// From the moment when the user ends a test until it is over: a person waits.
const IMPATIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two reports of progress.
const TICK: Duration = Duration::from_millis(250);

/// Which server to test against.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// TCP and UDP port.
    pub port: u16,
    /// IPv4 only or IPv6 only; none takes what the name gives.
    pub family: Option<Family>,
    /// What the server wants its clients to know.
    pub secret: Option<String>,
}

/// A test to be run.
#[derive(Clone, Debug)]
pub struct Test {
    /// The hosts that the scenario's endpoints refer to; the last stands in for those that are missing.
    pub targets: Vec<Target>,
    /// What to do.
    pub scenario: Scenario,
    /// How.
    pub settings: Settings,
    /// The user's own words.
    pub title: Option<String>,
}

/// Whoever runs a test, as far as the test is concerned.
pub struct Hooks<'a> {
    /// Told four or five times a second where the test is.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Set to end the test; what was measured until then is the result.
    pub stop: &'a AtomicBool,
    /// Asked twice a second for whatever else is to be kept with the result.
    pub gauges: Option<Gauges>,
}

/// What a test is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the load.
    Idle,
    /// Under load.
    Load,
    /// After the load.
    After,
    /// Waiting for results and late probes.
    Collect,
}

/// Where a running test is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// Since the beginning of the idle phase.
    pub elapsed: Duration,
    /// Until the end, results aside.
    pub left: Duration,
    /// Download since the last report, in Mbit/s.
    pub download_mbit: f64,
    /// Upload, in Mbit/s: what the kernel here knows to have arrived.
    pub upload_mbit: f64,
    /// The newest round trip of the first series that has one.
    pub rtt: Option<Duration>,
    /// The round trips of all probes of the kind that the latency figures are of whose answers came since the last report, in
    /// the order of their coming: by UDP with `sqm serve`, and with web servers by the first of DNS, ICMP and TCP that is
    /// answered.
    pub round_trips: Vec<Duration>,
}

/// A test that got as far as the load.
#[derive(Debug)]
pub struct Outcome {
    /// What was measured; marked if the test ended early.
    pub result: TestResult,
    /// Why it ended early.
    pub trouble: Option<Error>,
}

/// Runs a test and waits for its result.
///
/// Errors before the load begins leave nothing to keep; later ones come with what was measured until then.
pub fn run(test: &Test, hooks: Hooks<'_>) -> Result<Outcome, Error> {
    check(test)?;
    let Hooks {
        progress,
        stop,
        gauges,
    } = hooks;
    let mut running = Running::open(test, stop, progress)?;
    let recorder = Recorder::start(running.endpoints[0].local(), gauges);
    running.idle()?;
    let load = running.start()?;
    let began = SystemTime::now();
    running.load(&load);
    if running.trouble.is_some() {
        load.stop();
    }
    let seen = load.finish();
    running.after();
    running.collect();
    running.check_probes();
    Ok(outcome::outcome(running, seen, began, recorder))
}

/// Refuses settings that cannot give a result.
fn check(test: &Test) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Settings(text));
    if test.targets.is_empty() {
        return wrong("no server to test against".to_owned());
    }
    let counts = [Direction::Down, Direction::Up].map(|direction| test.scenario.count(direction));
    if counts.iter().any(|count| *count > MAX_FLOWS) {
        return wrong(format!("at most {MAX_FLOWS} flows in each direction"));
    }
    check_times(&test.settings)?;
    let flows = test.scenario.flows.iter().map(|flow| flow.dscp);
    let marks = flows.chain(test.scenario.probes.iter().map(|probe| probe.dscp));
    if let Some(dscp) = marks.max().filter(|dscp| *dscp > 63) {
        return wrong(format!("a DSCP is from 0 to 63, not {dscp}"));
    }
    if let Some(mss) = test.settings.mss.filter(|mss| !(88..=32_767).contains(mss)) {
        return wrong(format!("a segment size is from 88 to 32767 bytes, not {mss}"));
    }
    if test.scenario.probes.len() > usize::from(MAX_PROBES) {
        return wrong(format!("at most {MAX_PROBES} series of probes"));
    }
    Ok(())
}

/// Also of a test against web servers.
fn check_times(settings: &Settings) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Settings(text));
    let Settings {
        idle_ms,
        load_ms,
        after_ms,
        settle_ms,
        probe_interval_ms,
        ..
    } = *settings;
    if idle_ms > MAX_IDLE_MS || after_ms > MAX_IDLE_MS {
        return wrong(format!("at most {} s of idle phase", MAX_IDLE_MS / 1000));
    }
    if load_ms > MAX_LOAD_MS {
        return wrong(format!("at most {} s of load", MAX_LOAD_MS / 1000));
    }
    if load_ms <= settle_ms + TAIL_MS {
        return wrong(format!(
            "the load must last more than the settling time of {} s and 1 s, which the figures leave out",
            settle_ms as f64 / 1000.0
        ));
    }
    if !(1..=10_000).contains(&probe_interval_ms) {
        return wrong("the probe interval must be from 1 ms to 10 s".to_owned());
    }
    Ok(())
}

/// A test with everything connected.
struct Running<'a> {
    test: &'a Test,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    endpoints: Vec<Endpoint>,
    /// In the scenario's order.
    flows: Vec<endpoint::Attached>,
    probes: Vec<Series>,
    /// The beginning of the idle phase.
    begin: Instant,
    /// The beginning of the load.
    start: Instant,
    /// The end of the load: as planned, until it comes earlier.
    end: Instant,
    /// Then the test is over, whatever is still missing.
    deadline: Instant,
    /// The user has ended the test.
    is_ending: bool,
    down: Meter,
    up: Meter,
    trouble: Option<Error>,
}

/// A series of probes under way, or why it is not.
struct Series {
    plan: ProbePlan,
    prober: Result<Prober, String>,
}

impl<'a> Running<'a> {
    /// Connects all there is to connect while the line is idle, and starts the probes.
    fn open(
        test: &'a Test,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Progress),
    ) -> Result<Self, Error> {
        let Test {
            scenario, settings, ..
        } = test;
        let length = Duration::from_millis(settings.idle_ms + settings.load_ms + settings.after_ms);
        let deadline = Instant::now() + length + SPARE;
        let setup = Deadline::new(stop, SETUP);
        let mut endpoints = open_endpoints(test, &setup)?;
        let flows = attach_flows(test, &mut endpoints, &setup)?;
        check_probe_rates(scenario, settings, &endpoints)?;
        let begin = Instant::now();
        let until = begin + length + FIRST_PROBE_TIMEOUT;
        let mut probes = Vec::new();
        for (index, plan) in scenario.probes.iter().enumerate() {
            let interval = Duration::from_millis(plan.interval_ms.unwrap_or(settings.probe_interval_ms));
            // Series that start together would queue behind each other.
            let start = begin + interval * index as u32 / scenario.probes.len() as u32;
            let socket = probe_socket(plan, index as u16, &endpoints[plan.endpoint]);
            let prober = match socket {
                Ok(socket) => Ok(Prober::start(socket, interval, start, until)
                    .map_err(|e| Error::system("send probes", e))?),
                Err(reason) if plan.kind == ProbeKind::Icmp => Err(reason.to_string()),
                Err(reason) => return Err(Error::system("send probes", reason)),
            };
            probes.push(Series {
                plan: plan.clone(),
                prober,
            });
        }
        Ok(Self {
            test,
            stop,
            progress,
            endpoints,
            flows,
            probes,
            begin,
            start: begin,
            end: begin,
            deadline,
            is_ending: false,
            down: Meter::default(),
            up: Meter::default(),
            trouble: None,
        })
    }

    fn idle(&mut self) -> Result<(), Error> {
        let end = self.begin + Duration::from_millis(self.test.settings.idle_ms);
        let mut next = self.begin;
        while next < end {
            self.report(Stage::Idle, None);
            self.not_stopped()?;
            self.liar().map_or(Ok(()), Err)?;
            next = (next + TICK).min(end);
            socket::sleep_until(next);
        }
        let settings = &self.test.settings;
        let load = Duration::from_millis(settings.load_ms + settings.after_ms);
        let latest = (end + FIRST_PROBE_TIMEOUT).min(self.deadline - load);
        while let Some(silent) = self.silent_endpoint() {
            self.not_stopped()?;
            if Instant::now() >= latest {
                let endpoint = &self.endpoints[silent];
                return Err(Error::NoProbes {
                    host: endpoint.host().to_owned(),
                    port: endpoint.remote().port(),
                });
            }
            let interval = Duration::from_millis(self.test.settings.probe_interval_ms);
            std::thread::sleep(interval.min(TICK));
        }
        self.liar().map_or(Ok(()), Err)
    }

    fn not_stopped(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::Interrupted { at_s: 0.0 });
        }
        Ok(())
    }

    /// A server whose echo has not answered a single probe.
    fn silent_endpoint(&self) -> Option<usize> {
        (0..self.endpoints.len()).find(|index| {
            let mut asked = self.probes.iter().filter(|s| {
                s.plan.endpoint == *index && matches!(s.plan.kind, ProbeKind::Udp | ProbeKind::Voip)
            });
            let is_silent = |s: &Series| s.prober.as_ref().is_ok_and(|p| p.answers() == 0);
            asked.any(is_silent)
        })
    }

    /// The first server that answers probes with what cannot be.
    fn liar(&self) -> Option<Error> {
        let probers = self
            .probes
            .iter()
            .filter_map(|s| Some((s, s.prober.as_ref().ok()?)));
        let mut lies = probers.filter_map(|(series, prober)| Some((series.plan.endpoint, prober.lie()?)));
        let (endpoint, lie) = lies.next()?;
        Some(self.endpoints[endpoint].lied(&lie))
    }

    fn check_probes(&mut self) {
        if let Some(lie) = self.liar() {
            self.fail(lie);
        }
    }

    /// Starts both ends: the servers' by a message, ours at the same moment.
    fn start(&mut self) -> Result<Load, Error> {
        for endpoint in &mut self.endpoints {
            endpoint.start()?;
        }
        let settings = &self.test.settings;
        let length = Duration::from_millis(settings.load_ms);
        self.start = Instant::now();
        self.end = self.start + length;
        self.probe_until(self.end + Duration::from_millis(settings.after_ms));
        let flows = self.flows.iter_mut().filter_map(|flow| {
            let role = match flow.direction {
                Direction::Down => Role::Receive,
                Direction::Up => Role::Send,
            };
            Some((flow.stream.take()?, role))
        });
        let flows = flows.collect();
        Load::start(flows, self.start, length, None).map_err(|e| Error::system("start the load", e))
    }

    /// Listens to the servers until the load is over.
    fn load(&mut self, load: &Load) {
        let planned = self.end;
        let mut next = self.start;
        let (mut life, mut alive) = (0, Instant::now());
        while next < planned && self.trouble.is_none() {
            next = (next + TICK).min(planned);
            socket::sleep_until(next);
            let received = load.received().iter().sum();
            self.listen("loading the line");
            self.check_probes();
            self.report(Stage::Load, Some((received, load.delivered())));
            if self.is_stopped() {
                self.interrupted();
            }
            let signs = received + self.signs_of_life();
            if signs > life {
                (life, alive) = (signs, Instant::now());
            } else if alive.elapsed() > SILENCE {
                let reason = format!("nothing came from it for {} s", SILENCE.as_secs());
                let trouble = self.endpoints[0].vanished("loading the line", reason);
                self.fail(trouble);
            }
        }
        if self.trouble.is_some() {
            self.end = Instant::now();
            for endpoint in &mut self.endpoints {
                endpoint.stop();
            }
            self.probe_until(self.end);
        }
    }

    /// The line after the load; results arrive meanwhile.
    fn after(&mut self) {
        let end = self.end + Duration::from_millis(self.test.settings.after_ms);
        let mut next = self.end;
        while next < end && self.trouble.is_none() {
            next = (next + TICK).min(end);
            socket::sleep_until(next);
            self.listen("waiting for its results");
            self.report(Stage::After, None);
            if self.is_stopped() {
                // The load is complete; only the look at the line afterwards is cut short.
                self.probe_until(Instant::now());
                return;
            }
        }
    }

    /// Waits for the servers' side of the story.
    fn collect(&mut self) {
        self.report(Stage::Collect, None);
        let begun = Instant::now();
        while let Some(waiting) = self.endpoints.iter().position(|e| !e.is_done()) {
            // What follows from a trouble with a server is not waited for.
            let is_pointless = self
                .trouble
                .as_ref()
                .is_some_and(|t| !matches!(t, Error::Interrupted { .. }));
            self.is_stopped();
            let end = self.deadline.min(begun + RESULTS_TIMEOUT);
            if self.is_ending && Instant::now() >= end {
                self.interrupted();
                return;
            }
            let endpoint = &mut self.endpoints[waiting];
            if is_pointless || Instant::now() >= end {
                let reason = format!("no results within {:.0} s", begun.elapsed().as_secs_f64());
                let trouble = endpoint.vanished("waiting for its results", reason);
                self.fail(trouble);
                return;
            }
            if let Err(trouble) = endpoint.listen("waiting for its results", end.min(Instant::now() + TICK)) {
                self.fail(trouble);
                return;
            }
        }
    }

    fn interrupted(&mut self) {
        let at_s = self.start.elapsed().as_secs_f64();
        self.fail(Error::Interrupted { at_s });
    }

    /// Whether the user has ended the test; then it has little time left.
    fn is_stopped(&mut self) -> bool {
        let is_stopped = self.stop.load(Ordering::Acquire);
        if is_stopped && !self.is_ending {
            self.is_ending = true;
            self.deadline = self.deadline.min(Instant::now() + IMPATIENT_TIMEOUT);
        }
        is_stopped
    }

    /// Takes what the servers have said so far.
    fn listen(&mut self, during: &'static str) {
        for index in 0..self.endpoints.len() {
            if let Err(trouble) = self.endpoints[index].listen(during, Instant::now()) {
                self.fail(trouble);
            }
        }
    }

    /// The first trouble is the one to tell; the others follow from it.
    fn fail(&mut self, trouble: Error) {
        self.trouble.get_or_insert(trouble);
    }

    /// Grows whenever something comes from a server.
    fn signs_of_life(&self) -> u64 {
        let answers = self.probes.iter().filter_map(|s| s.prober.as_ref().ok());
        let words = self.endpoints.iter().map(Endpoint::words);
        answers.map(Prober::answers).chain(words).sum()
    }

    fn probe_until(&self, until: Instant) {
        for prober in self.probes.iter().filter_map(|s| s.prober.as_ref().ok()) {
            prober.set_until(until);
        }
    }

    /// `moved` are bytes so far, down and up.
    fn report(&mut self, stage: Stage, moved: Option<(u64, u64)>) {
        let elapsed = self.begin.elapsed();
        let settings = &self.test.settings;
        let all = Duration::from_millis(settings.idle_ms + settings.load_ms + settings.after_ms);
        let since_start = self.start.elapsed();
        let is_load = stage == Stage::Load;
        if let Some((received, delivered)) = moved {
            self.down.note(since_start, received);
            self.up.note(since_start, delivered);
        }
        // Those of the other kinds are taken too, or they would pile up.
        let probers = self
            .probes
            .iter()
            .filter_map(|s| Some((s, s.prober.as_ref().ok()?)));
        let recent = probers.map(|(series, prober)| (series.plan.kind, prober.take_recent()));
        let echoed = recent.filter(|(kind, _)| *kind == ProbeKind::Udp);
        let round_trips = echoed.flat_map(|(_, recent)| recent).collect();
        let rtt = self.probes.iter().find_map(|s| s.prober.as_ref().ok()?.newest());
        (self.progress)(&Progress {
            stage,
            elapsed,
            left: all.saturating_sub(elapsed),
            download_mbit: if is_load { self.down.mbit } else { 0.0 },
            upload_mbit: if is_load { self.up.mbit } else { 0.0 },
            rtt,
            round_trips,
        });
    }
}

/// Asks each server for the test.
fn open_endpoints(test: &Test, deadline: &Deadline<'_>) -> Result<Vec<Endpoint>, Error> {
    let Test {
        scenario, settings, ..
    } = test;
    let mut endpoints = Vec::new();
    for (index, plan) in scenario.endpoints.iter().enumerate() {
        let target = &test.targets[plan.host.min(test.targets.len() - 1)];
        let target = Target {
            family: plan.family.or(target.family),
            ..target.clone()
        };
        let count = |direction| {
            let flows = scenario.flows.iter().filter(|f| f.endpoint == index);
            flows.filter(|f| f.direction == direction).count() as u32
        };
        let asked = (count(Direction::Down), count(Direction::Up));
        endpoints.push(Endpoint::open(target, asked, settings, deadline)?);
    }
    Ok(endpoints)
}

/// Connects all flows side by side, so that a long path costs two round trips for all of them.
fn attach_flows(
    test: &Test,
    endpoints: &mut [Endpoint],
    deadline: &Deadline<'_>,
) -> Result<Vec<endpoint::Attached>, Error> {
    let flows = &test.scenario.flows;
    let begun: Vec<_> = flows
        .iter()
        .map(|flow| endpoints[flow.endpoint].attach(flow, &test.settings))
        .collect::<Result<_, _>>()?;
    let greeted: Vec<_> = flows
        .iter()
        .zip(begun)
        .map(|(flow, begun)| endpoints[flow.endpoint].greet(begun, deadline))
        .collect::<Result<_, _>>()?;
    flows
        .iter()
        .zip(greeted)
        .map(|(flow, greeted)| endpoints[flow.endpoint].attached(greeted, deadline))
        .collect()
}

/// Refuses more probes than a server answers: the others would look lost.
fn check_probe_rates(scenario: &Scenario, settings: &Settings, endpoints: &[Endpoint]) -> Result<(), Error> {
    for (index, endpoint) in endpoints.iter().enumerate() {
        let echoed = scenario
            .probes
            .iter()
            .filter(|plan| plan.endpoint == index && matches!(plan.kind, ProbeKind::Udp | ProbeKind::Voip));
        let rate = |plan: &ProbePlan| 1000.0 / plan.interval_ms.unwrap_or(settings.probe_interval_ms) as f64;
        let (asked, most) = (echoed.map(rate).sum::<f64>(), endpoint.max_probes_per_s);
        if asked > f64::from(most) {
            return Err(Error::Settings(format!(
                "{} answers {most} probes per second in one test, and these would be {asked:.0}: use a longer --probe-interval",
                endpoint.host()
            )));
        }
    }
    Ok(())
}

/// The way that probes of a series take.
fn probe_socket(plan: &ProbePlan, series: u16, endpoint: &Endpoint) -> std::io::Result<Box<dyn ProbeSocket>> {
    let server = endpoint.remote();
    Ok(match plan.kind {
        ProbeKind::Icmp => Box::new(Icmp::open(server.ip(), plan.dscp)?),
        ProbeKind::Tcp | ProbeKind::Http => Box::new(Connect::new(server, plan.dscp)),
        ProbeKind::Udp | ProbeKind::Voip => Box::new(Udp::open(
            server,
            endpoint.token(),
            series,
            plan.dscp,
            plan.bytes,
        )?),
    })
}

/// The rate since the last look.
#[derive(Default)]
struct Meter {
    at: Duration,
    bytes: u64,
    mbit: f64,
}

impl Meter {
    fn note(&mut self, at: Duration, bytes: u64) {
        if at > self.at {
            let seconds = (at - self.at).as_secs_f64();
            self.mbit = bytes.saturating_sub(self.bytes) as f64 * 8.0 / 1e6 / seconds;
            (self.at, self.bytes) = (at, bytes);
        }
    }
}

/// What our own end saw, flow by flow.
type OurSide = Vec<Seen>;
