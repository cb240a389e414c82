//! The reconciler decides when each interface is checked against its plan. It is a pure state machine: its only inputs are
//! events, outcomes of checks, and the time.
//!
//! An event of the kernel says that a device or its queues changed, but not how. It schedules a check, which compares the
//! queues with the plan and repairs them. All events within [`SETTLE`] cause a single check. A failed check is repeated with
//! exponential backoff. Two programs that undo each other's changes would do so for ever: after [`MAX_REPAIRS`] repairs within
//! [`CONFLICT_WINDOW`] the daemon backs off and reports a conflict.

use std::collections::VecDeque;

use sqm_api::status::State;
use sqm_core::units::{Instant, Nanos, Rate};

use crate::rate_watch::{self, Controller, OtherRates, RateWatch};

/// A check waits until there has been no event for this long, because events come in bursts. A choice.
pub(super) const SETTLE: Nanos = Nanos::from_millis(50);
/// The longest time that continuous events delay a check. A choice.
pub(super) const MAX_SETTLE: Nanos = Nanos::from_millis(250);
/// The longest time that continuous events delay a check while a rate controller causes them. A choice: it limits what the checks
/// take of a processor, and other changes are repaired within a second.
pub(super) const CONTROLLED_SETTLE: Nanos = Nanos::from_millis(500);
/// The time between two checks of an interface without any event. A choice: it limits how long a lost event goes unnoticed.
pub(super) const CHECK_INTERVAL: Nanos = Nanos::from_millis(30_000);
/// The wait after the first failure; each further failure doubles it. A choice.
pub(super) const FIRST_RETRY: Nanos = Nanos::from_millis(250);
/// The longest wait after a failure. A choice.
pub(super) const MAX_RETRY: Nanos = Nanos::from_millis(60_000);
/// This many repairs of one interface within [`CONFLICT_WINDOW`] are a conflict with another program. A choice.
pub(super) const MAX_REPAIRS: usize = 5;
/// The window of [`MAX_REPAIRS`], and the time for which the daemon backs off. A choice.
pub(super) const CONFLICT_WINDOW: Nanos = Nanos::from_millis(60_000);
/// The time between two checks while a change waits for its confirmation, another program holds the lock, or an interface is paused:
/// `sqm stop` of a paused interface changes no queue, so the kernel reports no event. A choice.
pub(super) const POLL_INTERVAL: Nanos = Nanos::from_millis(500);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A configuration was loaded: it shapes these interfaces and no others.
    Configured(Vec<ConfiguredInterface>),
    /// A change of the configuration was rolled back: the previous configuration shapes these interfaces, except those in
    /// `stopped`, which were stopped by hand when the configuration was changed.
    RolledBack {
        interfaces: Vec<ConfiguredInterface>,
        stopped: Vec<String>,
    },
    /// A device appeared or changed, or its state was read.
    DeviceChanged {
        index: u32,
        name: String,
        mtu: u32,
        up: bool,
        carrier: bool,
    },
    /// A device was removed.
    DeviceRemoved(u32),
    /// Some process, perhaps this daemon, changed the queues of a device.
    QueuesChanged(u32),
    /// Some process changed the firewall.
    FirewallChanged,
    /// Events of the kernel were lost.
    EventsLost,
    /// A client of the API wants this interface shaped now. If it is paused, the pause ends.
    ApplyRequested(String),
    /// The daemon adopted a configuration that another program has applied: it shapes these interfaces and no others.
    Adopted(Vec<ConfiguredInterface>),
    /// A client of the API wants this interface unshaped until then, or until the pause is ended sooner.
    PauseRequested { interface: String, until: Instant },
    /// The pause of this interface is over: the client has gone, or the pause could not begin.
    PauseEnded(String),
    /// A check, which ends after this event, has found and left these rates of other programs.
    OtherRatesFound(String, OtherRates),
    /// The rates that the daemon wants for this interface changed.
    RatesChanged(String),
    /// An interface could not be released because another sqm program is changing the queues.
    NotReleased(String),
    /// The check of an interface has ended.
    Checked(String, Outcome),
}

/// A configured interface, and the IFB that carries its ingress queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfiguredInterface {
    pub(super) interface: String,
    pub(super) ifb: String,
    /// The rates of its section, of departing and of arriving packets.
    pub(super) rates: [Option<Rate>; 2],
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is no such device. The text says why, if that is known.
    Absent(Option<String>),
    /// The queues were as planned.
    AsPlanned { index: u32 },
    /// The queues were changed to the plan. `own`: because the daemon's plan changed; otherwise another program had changed the
    /// queues.
    Changed {
        index: u32,
        changes: Vec<String>,
        own: bool,
    },
    /// The queues differ from the plan and were left unchanged, because drift is only reported.
    Drifted { index: u32, differences: Vec<String> },
    /// The queues could not be read or changed.
    Failed(String),
    /// The interface was stopped by hand, and no command has started it since.
    Stopped,
    /// The interface is not shaped, because a client of the API has paused it.
    Paused,
    /// A change of `sqm start --confirm` waits for its confirmation.
    Unconfirmed,
    /// Another sqm program is changing the queues. The request of [`Action::Check`] has not been carried out.
    Busy { request: Request },
}

/// The purpose of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Request {
    /// Repair what differs from the plan. The device or its queues may have changed, or the regular check is due.
    #[default]
    Check,
    /// Apply the plan, unless the interface was stopped by hand. The configuration was rolled back.
    RollBack,
    /// Apply the plan, even if the interface was stopped by hand.
    Apply,
    /// Stop the interface: it had been stopped by hand before a change that was rolled back.
    Stop,
    /// Remove the shaping for a while.
    Pause,
    /// Apply the plan because the pause is over, unless the interface was stopped by hand meanwhile.
    Resume,
    /// Leave a paused interface unshaped, unless another program has shaped it in the meantime.
    StayPaused,
}

/// An action that the main loop must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Check an interface, and repair it. `shaped` is the index of the device that was shaped last.
    Check {
        interface: String,
        shaped: Option<u32>,
        request: Request,
        /// Leave rates that another program has set.
        leave_rates: bool,
    },
    /// Stop shaping an interface that is no longer configured.
    Release(String),
}

/// The state of a device that the kernel reported last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) carrier: bool,
}

/// The state of one configured interface.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) interface: String,
    pub(super) ifb: String,
    rates: [Option<Rate>; 2],
    pub(super) state: State,
    /// Why it is in this state, unless it is shaped.
    pub(super) why: Option<String>,
    pub(super) device: Option<Device>,
    ifb_device: Option<Device>,
    /// When it entered this state.
    pub(super) since: Instant,
    /// The index of the device that was shaped last.
    shaped: Option<u32>,
    /// When the next check is due.
    due: Option<Instant>,
    /// The time of the first event since the last check.
    first_event: Option<Instant>,
    /// The request of the next check.
    request: Request,
    /// When the pause ends, while a client of the API has paused the interface. Only memory holds it: a daemon that is started
    /// again shapes the interface.
    paused_until: Option<Instant>,
    /// Failed checks in a row.
    failures: u32,
    /// When changes of other programs were undone, within [`CONFLICT_WINDOW`].
    repairs: VecDeque<Instant>,
    /// The rates that other programs have set.
    rate_watch: RateWatch,
    /// How often the queues were set up or changed.
    pub(super) applied: u64,
    /// How often a change of another program was undone.
    pub(super) repaired: u64,
    /// The steps of the last change.
    pub(super) changes: Vec<String>,
}

/// The state machine: all configured interfaces.
#[derive(Debug, Default)]
pub(super) struct Reconciler {
    sections: Vec<Section>,
    /// Interfaces that are no longer configured, and when to release them.
    released: Vec<(String, Instant)>,
}

impl Reconciler {
    /// Handles an event that happened at `now`.
    pub(super) fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::Configured(interfaces) => {
                self.configure(interfaces, now);
                self.each(|section| section.request_check(Request::Apply, now));
            }
            Event::RolledBack { interfaces, stopped } => {
                self.configure(interfaces, now);
                self.each(|section| {
                    let request = match stopped.contains(&section.interface) {
                        true => Request::Stop,
                        false => Request::RollBack,
                    };
                    section.request_check(request, now);
                });
            }
            Event::Adopted(interfaces) => self.configure(interfaces, now),
            Event::PauseRequested { interface, until } => self.each(|section| {
                if interface == section.interface {
                    section.request_check(Request::Pause, now);
                    section.paused_until = Some(until);
                }
            }),
            Event::PauseEnded(interface) => self.each(|section| {
                if interface == section.interface && section.paused_until.is_some() {
                    section.request_check(Request::Resume, now);
                }
            }),
            Event::OtherRatesFound(interface, rates) => self.each(|section| {
                if interface == section.interface {
                    section.rate_watch.found(rates.clone(), now);
                }
            }),
            Event::RatesChanged(interface) => self.each(|section| {
                if interface == section.interface {
                    section.due = Some(now);
                }
            }),
            Event::NotReleased(interface) => {
                if self.sections.iter().all(|section| section.interface != interface) {
                    self.released.push((interface, now + POLL_INTERVAL));
                }
            }
            Event::DeviceChanged {
                index,
                name,
                mtu,
                up,
                carrier,
            } => {
                let device = Device {
                    index,
                    mtu,
                    up,
                    carrier,
                };
                self.each(|section| section.on_device(&name, device, now));
            }
            Event::DeviceRemoved(index) => self.each(|section| section.on_removed(index, now)),
            Event::QueuesChanged(index) => self.each(|section| {
                if section.has(index) {
                    section.schedule_check(now);
                }
            }),
            Event::FirewallChanged | Event::EventsLost => self.each(|section| section.schedule_check(now)),
            Event::ApplyRequested(interface) => self.each(|section| {
                if interface == section.interface {
                    let request = match section.paused_until {
                        Some(_) => Request::Resume,
                        None => Request::Apply,
                    };
                    section.rate_watch.reset();
                    section.request_check(request, now);
                }
            }),
            Event::Checked(interface, outcome) => {
                if let Some(section) = self.sections.iter_mut().find(|s| s.interface == interface) {
                    section.on_checked(outcome, now);
                }
            }
        }
    }

    /// The next action that is due at `now`; `None` if none is.
    pub(super) fn next(&mut self, now: Instant) -> Option<Action> {
        if let Some(place) = self.released.iter().position(|(_, due)| *due <= now) {
            return Some(Action::Release(self.released.remove(place).0));
        }
        let section = self
            .sections
            .iter_mut()
            .find(|section| section.due.is_some_and(|due| due <= now))?;
        section.due = None;
        let has_event = section.first_event.take().is_some();
        section.pause(now);
        let request = std::mem::take(&mut section.request);
        let leaves_rates = section.rate_watch.leaves_rates(has_event, now);
        let is_controlled = section.rate_watch.controller().is_some();
        Some(Action::Check {
            interface: section.interface.clone(),
            shaped: section.shaped,
            request,
            leave_rates: is_controlled || (leaves_rates && request == Request::Check),
        })
    }

    /// When the next action is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let released = self.released.iter().map(|(_, due)| *due);
        let checked = self.sections.iter().filter_map(|section| section.due);
        checked.chain(released).min()
    }

    /// All configured interfaces, in the order of the configuration.
    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Interfaces that are no longer configured and have not been released yet.
    pub(super) fn unreleased(&self) -> impl Iterator<Item = &str> {
        self.released.iter().map(|(interface, _)| interface.as_str())
    }

    fn configure(&mut self, interfaces: Vec<ConfiguredInterface>, now: Instant) {
        let mut before = std::mem::take(&mut self.sections);
        for ConfiguredInterface {
            interface,
            ifb,
            rates,
        } in interfaces
        {
            let known = before.iter().position(|section| section.interface == interface);
            self.sections.push(match known {
                Some(at) => {
                    let known = before.remove(at);
                    Section {
                        ifb,
                        rates,
                        // Another rate in the file must take effect.
                        rate_watch: match known.rates == rates {
                            true => known.rate_watch,
                            false => RateWatch::default(),
                        },
                        ..known
                    }
                }
                None => {
                    let mut section = Section::new(interface, ifb, now);
                    section.rates = rates;
                    section.request_check(Request::Apply, now);
                    section
                }
            });
        }
        self.released
            .extend(before.into_iter().map(|section| (section.interface, now)));
        // An interface that is configured again before it was released needs no release.
        let sections = &self.sections;
        self.released
            .retain(|(name, _)| sections.iter().all(|section| section.interface != *name));
    }

    fn each(&mut self, act: impl FnMut(&mut Section)) {
        self.sections.iter_mut().for_each(act);
    }
}

impl Outcome {
    /// `true` if the check shows that the interface is shaped, or was stopped by hand: another program has ended the pause.
    fn ends_pause(&self) -> bool {
        match self {
            Self::AsPlanned { .. } | Self::Changed { .. } | Self::Drifted { .. } | Self::Stopped => true,
            Self::Absent(_) | Self::Failed(_) | Self::Paused | Self::Unconfirmed | Self::Busy { .. } => false,
        }
    }
}

impl Section {
    fn new(interface: String, ifb: String, now: Instant) -> Self {
        Self {
            interface,
            ifb,
            rates: [None; 2],
            state: State::New,
            why: None,
            device: None,
            ifb_device: None,
            since: now,
            shaped: None,
            due: None,
            first_event: None,
            request: Request::Check,
            paused_until: None,
            failures: 0,
            repairs: VecDeque::new(),
            rate_watch: RateWatch::default(),
            applied: 0,
            repaired: 0,
            changes: Vec::new(),
        }
    }

    /// `true` if a check is due because of an event.
    pub(super) fn has_event(&self) -> bool {
        self.first_event.is_some()
    }

    /// When the pause ends, while the interface is paused.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// The other program that controls the rates, if there is one.
    pub(super) fn rate_controller(&self) -> Option<Controller> {
        self.rate_watch.controller()
    }

    /// Makes the next check one of a paused interface, or the one that ends the pause if its time is over.
    fn pause(&mut self, now: Instant) {
        let Some(until) = self.paused_until else { return };
        if until <= now {
            self.paused_until = None;
            self.request = Request::Resume;
        } else if self.request == Request::Check {
            self.request = Request::StayPaused;
        }
    }

    /// `true` if `index` is the interface's device or its IFB.
    fn has(&self, index: u32) -> bool {
        let is_it = |device: &Option<Device>| device.is_some_and(|device| device.index == index);
        is_it(&self.device) || is_it(&self.ifb_device)
    }

    fn on_device(&mut self, name: &str, device: Device, now: Instant) {
        if name == self.ifb {
            if self.ifb_device.replace(device) != Some(device) {
                self.schedule_check(now);
            }
        } else if name == self.interface {
            let before = self.device.replace(device);
            if before == Some(device) {
                return;
            }
            if before.is_none_or(|before| before.index != device.index) {
                self.reset_backoff();
            }
            self.schedule_check(now);
        } else if self.device.is_some_and(|known| known.index == device.index) {
            // The device was renamed.
            self.device = None;
            self.schedule_check(now);
        } else if self.has(device.index) {
            self.ifb_device = None;
            self.schedule_check(now);
        }
    }

    fn on_removed(&mut self, index: u32, now: Instant) {
        if !self.has(index) {
            return;
        }
        if self.device.is_some_and(|device| device.index == index) {
            self.device = None;
        } else {
            self.ifb_device = None;
        }
        self.schedule_check(now);
    }

    /// Schedules a check because of an event that may concern this interface.
    fn schedule_check(&mut self, now: Instant) {
        if self.state == State::Contested && self.due.is_some() {
            // The daemon backs off: further changes of the other program do not end that.
            return;
        }
        let in_a_burst = self.first_event.is_some();
        let first = *self.first_event.get_or_insert(now);
        // A rate controller causes events all the time.
        let longest = match self.rate_watch.controller() {
            Some(_) => CONTROLLED_SETTLE,
            None => MAX_SETTLE,
        };
        let settled = (now + SETTLE).min(first + longest);
        self.due = Some(match self.due {
            // A check that is due sooner for another reason stays due.
            Some(due) if !in_a_burst => due.min(settled),
            _ => settled,
        });
    }

    /// Forgets failures and repairs, and ends a backoff.
    fn reset_backoff(&mut self) {
        self.failures = 0;
        self.repairs.clear();
        if self.state == State::Contested {
            self.due = None;
            self.enter(State::New, None, self.since);
        }
    }

    /// Schedules a check at once, with this request. It ends a pause.
    fn request_check(&mut self, request: Request, now: Instant) {
        self.reset_backoff();
        self.paused_until = None;
        self.request = request;
        self.first_event = None;
        self.due = Some(now);
    }

    fn on_checked(&mut self, outcome: Outcome, now: Instant) {
        // An event during the check has already scheduled another check, which may be due sooner (below).
        let mut due = now + CHECK_INTERVAL;
        let mut rates_due = None;
        if outcome.ends_pause() {
            self.paused_until = None;
        }
        match outcome {
            Outcome::Absent(why) => {
                self.device = None;
                self.shaped = None;
                self.failures = 0;
                // A rename is reported by one check only: keep its text.
                let known = self.why.take().filter(|_| self.state == State::Waiting);
                let why = why
                    .or(known)
                    .unwrap_or_else(|| format!("there is no network device {}", self.interface));
                self.enter(State::Waiting, Some(why), now);
            }
            Outcome::AsPlanned { index } => {
                self.shaped = Some(index);
                self.failures = 0;
                rates_due = self.rate_watch.due();
                self.enter_shaped(now);
            }
            Outcome::Changed { index, changes, own } => {
                self.failures = 0;
                self.applied += 1;
                self.changes = changes;
                // This device was shaped before, so another program has changed its queues, unless `own`.
                let was_shaped = self.shaped.replace(index) == Some(index) && self.state == State::Shaped;
                let is_repair = was_shaped && !own;
                rates_due = self.rate_watch.due();
                self.enter_shaped(now);
                // Rates that were left for a later check belong to the same repair as what this one has repaired.
                if is_repair && !self.rate_watch.is_undecided() {
                    due = self.on_repair(now);
                }
            }
            Outcome::Drifted { index, differences } => {
                self.shaped = Some(index);
                let why = format!("the queues differ from the plan: {}", differences.join("; "));
                self.enter(State::Drifted, Some(why), now);
            }
            Outcome::Failed(why) => {
                let wait = Nanos(FIRST_RETRY.0 << self.failures.min(16)).min(MAX_RETRY);
                self.failures += 1;
                due = now + wait;
                self.enter(State::Failed, Some(why), now);
            }
            // Events do not end this state; only a command or a client of the API does.
            Outcome::Stopped => {
                let why = "stopped by hand; 'sqm start' or a reload shapes it again".to_owned();
                self.enter(State::Stopped, Some(why), now);
            }
            Outcome::Paused => {
                self.failures = 0;
                due = now + POLL_INTERVAL;
                let why = "paused on request, for a test without SQM; the daemon shapes it again by itself";
                self.enter(State::Paused, Some(why.to_owned()), now);
            }
            Outcome::Unconfirmed => {
                due = now + POLL_INTERVAL;
                let why = "a change waits for 'sqm confirm'".to_owned();
                self.enter(State::Unconfirmed, Some(why), now);
            }
            // The daemon does not block on the lock: it must feed its watchdog while another program, such as `sqm tune`, works.
            Outcome::Busy { request } => {
                due = now + POLL_INTERVAL;
                // A request that arrived during the check replaces this one.
                if self.request == Request::Check {
                    self.request = request;
                }
                let why =
                    "another sqm program is changing the queues; the daemon checks them when it has ended"
                        .to_owned();
                self.enter(State::Unconfirmed, Some(why), now);
            }
        }
        let dues = [
            Some(due),
            self.due,
            self.paused_until,
            rates_due.map(|due| due.max(now + SETTLE)),
        ];
        self.due = dues.into_iter().flatten().min();
    }

    fn enter_shaped(&mut self, now: Instant) {
        if self.state == State::Drifted && self.rate_watch.is_undecided() {
            // Reported already, and still there.
            return;
        }
        let why = self.rate_watch.controller().map(|_| {
            format!(
                "another program controls the rates: the daemon leaves them alone until they have not changed for {} s, and keeps \
                 everything else as configured",
                rate_watch::SILENCE.0 / 1_000_000_000
            )
        });
        self.enter(State::Shaped, why, now);
    }

    /// Counts a repair and returns when the next check is due: later if there is a conflict with another program.
    fn on_repair(&mut self, now: Instant) -> Instant {
        self.repaired += 1;
        self.repairs.push_back(now);
        while self
            .repairs
            .front()
            .is_some_and(|first| now.since(*first) > CONFLICT_WINDOW)
        {
            self.repairs.pop_front();
        }
        if self.repairs.len() < MAX_REPAIRS {
            return now + CHECK_INTERVAL;
        }
        self.repairs.clear();
        let why = format!(
            "another program has changed the queues {MAX_REPAIRS} times within {} s, and each time they were repaired; \
             backing off for {} s: {}",
            CONFLICT_WINDOW.0 / 1_000_000_000,
            CONFLICT_WINDOW.0 / 1_000_000_000,
            self.changes.join("; ")
        );
        self.enter(State::Contested, Some(why), now);
        self.due = None;
        now + CONFLICT_WINDOW
    }

    fn enter(&mut self, state: State, why: Option<String>, now: Instant) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
        self.why = why;
    }
}

#[cfg(test)]
mod tests;
