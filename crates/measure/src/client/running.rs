//! A test under way: its connections, flows and probes, phase by phase.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqm_core::direction::Direction;

use super::endpoint::{self, Endpoint};
use super::timing::{
    FIRST_PROBE_TIMEOUT, RESULTS_TIMEOUT, RateMeter, SETUP, SILENCE, SPARE, STOP_TIMEOUT, TICK,
};
use super::types::{Progress, Stage, Target, Test};
use crate::deadline::Deadline;
use crate::load::{Load, LoadFlow, Role};
use crate::probe::{Connect, Icmp, ProbeSocket, Prober, Udp};
use crate::protocol::Window;
use crate::result::{Phase, ProbeKind, Settings};
use crate::scenario::{ProbePlan, Scenario};
use crate::{Error, socket};

/// A test with all its connections.
pub(super) struct Running<'a> {
    pub(super) test: &'a Test,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a mut dyn FnMut(&Progress),
    pub(super) endpoints: Vec<Endpoint>,
    /// The connections of each flow of the scenario, in its order: one for each window.
    pub(super) flows: Vec<endpoint::Attached>,
    pub(super) probes: Vec<Series>,
    /// The beginning of the idle phase.
    pub(super) begin: Instant,
    /// The beginning of the load.
    pub(super) start: Instant,
    /// The end of the load: the planned one, or the actual one if the load ended early.
    pub(super) end: Instant,
    /// The test is over at this moment, even if results are missing.
    pub(super) deadline: Instant,
    /// The user has asked to end the test.
    pub(super) is_ending: bool,
    pub(super) down: RateMeter,
    pub(super) up: RateMeter,
    pub(super) failure: Option<Error>,
}

/// A running series of probes, or the reason why it could not start.
pub(super) struct Series {
    pub(super) plan: ProbePlan,
    pub(super) prober: Result<Prober, String>,
}

impl<'a> Running<'a> {
    /// Opens all connections while the line is idle, and starts the probes.
    pub(super) fn open(
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
            // The series start at different moments: their probes would otherwise queue behind each other.
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
            down: RateMeter::default(),
            up: RateMeter::default(),
            failure: None,
        })
    }

    pub(super) fn idle(&mut self) -> Result<(), Error> {
        let end = self.begin + Duration::from_millis(self.test.settings.idle_ms);
        let mut next = self.begin;
        while next < end {
            self.report(Stage::Idle, None);
            self.not_stopped()?;
            self.first_contradiction().map_or(Ok(()), Err)?;
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
        self.first_contradiction().map_or(Ok(()), Err)
    }

    fn not_stopped(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::Interrupted { at_s: 0.0 });
        }
        Ok(())
    }

    /// The first server that has not answered a single probe.
    fn silent_endpoint(&self) -> Option<usize> {
        (0..self.endpoints.len()).find(|index| {
            let mut asked = self.probes.iter().filter(|s| {
                s.plan.endpoint == *index && matches!(s.plan.kind, ProbeKind::Udp | ProbeKind::Voip)
            });
            let is_silent = |s: &Series| s.prober.as_ref().is_ok_and(|p| p.answers() == 0);
            asked.any(is_silent)
        })
    }

    /// The error for the first server with an impossible probe answer.
    fn first_contradiction(&self) -> Option<Error> {
        let probers = self
            .probes
            .iter()
            .filter_map(|s| Some((s, s.prober.as_ref().ok()?)));
        let mut lies =
            probers.filter_map(|(series, prober)| Some((series.plan.endpoint, prober.contradiction()?)));
        let (endpoint, lie) = lies.next()?;
        Some(self.endpoints[endpoint].implausible(&lie))
    }

    pub(super) fn check_probes(&mut self) {
        if let Some(lie) = self.first_contradiction() {
            self.fail(lie);
        }
    }

    /// Starts the load at both ends: tells the servers, and starts our own part at the same moment.
    pub(super) fn start(&mut self) -> Result<Load, Error> {
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
                Direction::Download => Role::Receive,
                Direction::Upload => Role::Send,
            };
            Some(LoadFlow {
                stream: flow.stream.take()?,
                role,
                window: flow.window,
            })
        });
        let flows = flows.collect();
        Load::start(flows, self.start, length, None).map_err(|e| Error::system("start the load", e))
    }

    /// Receives the messages of the servers until the load is over.
    pub(super) fn load(&mut self, load: &Load) {
        let planned = self.end;
        let mut next = self.start;
        let (mut signs, mut alive) = (0, Instant::now());
        while next < planned && self.failure.is_none() {
            next = (next + TICK).min(planned);
            socket::sleep_until(next);
            let received = load.received().iter().sum();
            self.listen("loading the line");
            self.check_probes();
            self.report(Stage::Load, Some((received, load.delivered())));
            if self.is_stopped() {
                self.interrupted();
            }
            let newest = received + self.signs_of_life();
            if newest > signs {
                (signs, alive) = (newest, Instant::now());
            } else if alive.elapsed() > SILENCE {
                let reason = format!("no data came from it for {} s", SILENCE.as_secs());
                let failure = self.endpoints[0].vanished("loading the line", reason);
                self.fail(failure);
            }
        }
        if self.failure.is_some() {
            self.end = Instant::now();
            for endpoint in &mut self.endpoints {
                endpoint.stop();
            }
            self.probe_until(self.end);
        }
    }

    /// The idle phase after the load. Results arrive meanwhile.
    pub(super) fn after(&mut self) {
        let end = self.end + Duration::from_millis(self.test.settings.after_ms);
        let mut next = self.end;
        while next < end && self.failure.is_none() {
            next = (next + TICK).min(end);
            socket::sleep_until(next);
            self.listen("waiting for its results");
            self.report(Stage::After, None);
            if self.is_stopped() {
                // The load is complete; only the idle phase after it is cut short.
                self.probe_until(Instant::now());
                return;
            }
        }
    }

    /// Waits for the results of the servers.
    pub(super) fn collect(&mut self) {
        self.report(Stage::Collect, None);
        let begun = Instant::now();
        while let Some(waiting) = self.endpoints.iter().position(|e| !e.is_done()) {
            // After a failure of a server, further results are not worth a wait.
            let is_pointless = self
                .failure
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
                let failure = endpoint.vanished("waiting for its results", reason);
                self.fail(failure);
                return;
            }
            if let Err(failure) = endpoint.listen("waiting for its results", end.min(Instant::now() + TICK)) {
                self.fail(failure);
                return;
            }
        }
    }

    fn interrupted(&mut self) {
        let at_s = self.start.elapsed().as_secs_f64();
        self.fail(Error::Interrupted { at_s });
    }

    /// True if the user has asked to end the test. The first time, this shortens the deadline of the test.
    fn is_stopped(&mut self) -> bool {
        let is_stopped = self.stop.load(Ordering::Acquire);
        if is_stopped && !self.is_ending {
            self.is_ending = true;
            self.deadline = self.deadline.min(Instant::now() + STOP_TIMEOUT);
        }
        is_stopped
    }

    /// Receives the messages that the servers have sent so far.
    fn listen(&mut self, during: &'static str) {
        for index in 0..self.endpoints.len() {
            if let Err(failure) = self.endpoints[index].listen(during, Instant::now()) {
                self.fail(failure);
            }
        }
    }

    /// Keeps the first failure: later ones follow from it.
    fn fail(&mut self, failure: Error) {
        self.failure.get_or_insert(failure);
    }

    /// A counter that grows with each message and each probe answer.
    fn signs_of_life(&self) -> u64 {
        let answers = self.probes.iter().filter_map(|s| s.prober.as_ref().ok());
        let messages = self.endpoints.iter().map(Endpoint::messages);
        answers.map(Prober::answers).chain(messages).sum()
    }

    fn probe_until(&self, until: Instant) {
        for prober in self.probes.iter().filter_map(|s| s.prober.as_ref().ok()) {
            prober.set_until(until);
        }
    }

    /// Reports progress. `moved` has the bytes so far, down and up.
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
        // Take the round trips of all kinds, so that none pile up. Only those by UDP are reported.
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

/// Opens a control connection to each server, and asks for the test.
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
            let flows = flows.filter(|f| f.direction == direction).count();
            (flows * windows(settings, direction).len()) as u32
        };
        let asked = (count(Direction::Download), count(Direction::Upload));
        let endpoint = Endpoint::open(target, asked, settings, deadline)?;
        if settings.is_in_turn() && !endpoint.has_windows {
            return Err(Error::Refused {
                host: endpoint.host().to_owned(),
                reason: format!(
                    "its version of sqm, {}, cannot load one direction after the other: update it, or load both at once \
                     with --test rrul_be",
                    endpoint.program
                ),
            });
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// Connects all flows in parallel: together they take two round trips.
fn attach_flows(
    test: &Test,
    endpoints: &mut [Endpoint],
    deadline: &Deadline<'_>,
) -> Result<Vec<endpoint::Attached>, Error> {
    let mut begun = Vec::new();
    for (plan, flow) in test.scenario.flows.iter().enumerate() {
        for window in windows(&test.settings, flow.direction) {
            let attaching = endpoints[flow.endpoint].attach(flow, window, &test.settings)?;
            begun.push((plan, flow.endpoint, attaching));
        }
    }
    let mut greeted = Vec::new();
    for (plan, endpoint, begun) in begun {
        greeted.push((plan, endpoint, endpoints[endpoint].greet(begun, deadline)?));
    }
    greeted
        .into_iter()
        .map(|(plan, endpoint, greeted)| endpoints[endpoint].attached(plan, greeted, deadline))
        .collect()
}

/// When the flows of a direction carry data. Each window has a connection of its own, so that a phase ends with its connections and
/// their buffers. `None` stands for the whole load.
fn windows(settings: &Settings, direction: Direction) -> Vec<Option<Window>> {
    if !settings.is_in_turn() {
        return vec![None];
    }
    let phases = settings.phases().into_iter();
    let loaded = phases.filter(|phase| phase.loaded.contains(&direction));
    let window = |phase: Phase| Window {
        from_ms: phase.from_ms as u64,
        to_ms: phase.to_ms as u64,
    };
    loaded.map(|phase| Some(window(phase))).collect()
}

/// Refuses more probes than a server answers: the rest would count as lost.
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

/// Opens the socket of a series of probes.
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
