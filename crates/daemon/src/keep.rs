//! What to do about each interface, and when: a pure function of what was seen, what was tried, and the time.
//!
//! News of a device or of its queues do not say what is wrong; they make it due for a check, which looks, compares with the
//! plan, and repairs. Several pieces of news within [`SETTLE`] are one check. What fails is tried again, later each time.
//! Two programs that undo each other's work would do so for ever: after [`MOST_REPAIRS`] within [`CONTEST`] this one
//! waits, and says why.

use std::collections::VecDeque;

use sqm_core::units::{Instant, Nanos};

/// News are awaited this long after the last piece, because they come in bursts.
pub(super) const SETTLE: Nanos = Nanos::from_millis(50);
/// A storm of news keeps a check waiting no longer than this.
pub(super) const MOST_SETTLE: Nanos = Nanos::from_millis(250);
/// Everything is looked at again after this, whether there was news or not.
pub(super) const LOOK: Nanos = Nanos::from_millis(30_000);
/// After a failure; doubled by each further one.
pub(super) const RETRY: Nanos = Nanos::from_millis(250);
/// The longest wait between two tries.
pub(super) const MOST_RETRY: Nanos = Nanos::from_millis(60_000);
/// Repairs of one device that others broke, within [`CONTEST`], before giving way.
pub(super) const MOST_REPAIRS: usize = 5;
/// See [`MOST_REPAIRS`]; also how long to give way.
pub(super) const CONTEST: Nanos = Nanos::from_millis(60_000);
/// How often to look whether somebody has confirmed.
pub(super) const CONFIRMATION: Nanos = Nanos::from_millis(500);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The configuration shapes these interfaces, and no others.
    Configured(Vec<Named>),
    /// A changed configuration was rolled back: this one shapes these interfaces, but for those that are stopped by hand now, or
    /// were when it was changed.
    RolledBack { named: Vec<Named>, stopped: Vec<String> },
    /// A device is there, perhaps changed.
    Device {
        index: u32,
        name: String,
        mtu: u32,
        up: bool,
        carrier: bool,
    },
    /// A device is gone.
    Gone(u32),
    /// Somebody, perhaps we, changed the queues of a device.
    Queues(u32),
    /// Somebody changed the firewall.
    Firewall,
    /// News were lost.
    Lost,
    /// Somebody wants this interface shaped now.
    Asked(String),
    /// Somebody has brought a changed file into force: it shapes these interfaces, and no others.
    Adopted(Vec<Named>),
    /// We have other rates for this interface.
    Rates(String),
    /// An interface could not be released because another program of sqm is at work on the queues.
    NotReleased(String),
    /// A check has ended.
    Checked(String, Outcome),
}

/// An interface and the device that carries its ingress queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) interface: String,
    pub(super) ifb: String,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is no such device; with a remark, if there is one to make.
    Absent(Option<String>),
    /// It was as planned already.
    AsPlanned { index: u32 },
    /// It was not, and is now. `own`: we wanted something else than before; else somebody else has changed it.
    Changed {
        index: u32,
        changes: Vec<String>,
        own: bool,
    },
    /// It is not, and drift is only to be reported.
    Drifted { index: u32, differences: Vec<String> },
    /// It could not be brought about.
    Failed(String),
    /// Somebody stopped it by hand, now or earlier, and nobody has asked for it since.
    Stopped,
    /// Somebody tries a change and has not confirmed it.
    Unconfirmed,
    /// Another program is at work on the queues; the request of [`Action::Check`] is still to be carried out.
    Busy { request: Request },
}

/// Why an interface is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Request {
    /// The device or its queues may have changed, or the regular check is due.
    #[default]
    Look,
    /// The configuration was rolled back: the daemon applies it, but not to an interface that was stopped by hand.
    RollBack,
    /// Somebody wants it shaped, even if it was stopped by hand.
    Shape,
    /// It is to be stopped, as it had been by hand.
    Stop,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Look at an interface, and repair it. `shaped` is the number of the device that was shaped last.
    Check {
        interface: String,
        shaped: Option<u32>,
        request: Request,
    },
    /// Stop shaping an interface that is configured no more.
    Release(String),
}

/// What an interface is, for whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not looked at yet.
    New,
    /// The kernel holds what is planned, and that was read back.
    Shaped,
    /// There is no device.
    Waiting,
    /// It cannot be shaped.
    Failed,
    /// The kernel holds something else, and that is to be reported only.
    Drifted,
    /// Another program replaces the queues again and again.
    Contested,
    /// Stopped by hand.
    Stopped,
    /// A change waits for somebody's confirmation.
    Unconfirmed,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Shaped => "shaped",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Drifted => "drifted",
            Self::Contested => "contested",
            Self::Stopped => "stopped",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// What the kernel told of a device last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) carrier: bool,
}

/// One interface.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) interface: String,
    pub(super) ifb: String,
    pub(super) state: State,
    /// Why it is not shaped, or what to know about it.
    pub(super) why: Option<String>,
    pub(super) device: Option<Device>,
    ifb_device: Option<Device>,
    /// When it came into this state.
    pub(super) since: Instant,
    /// The device that was shaped last.
    shaped: Option<u32>,
    /// When to look.
    due: Option<Instant>,
    /// Of the burst of news that made it due.
    first_news: Option<Instant>,
    request: Request,
    failures: u32,
    /// When others' changes were undone.
    repairs: VecDeque<Instant>,
    /// How often it was shaped, and how often a change of others was undone.
    pub(super) applied: u64,
    pub(super) repaired: u64,
    /// What the last change was.
    pub(super) changes: Vec<String>,
}

/// Everything that is to be kept.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    sections: Vec<Section>,
    /// Interfaces that are configured no more, and when to release them.
    released: Vec<(String, Instant)>,
}

impl Keeper {
    /// Takes in what happened.
    pub(super) fn on(&mut self, event: Event, now: Instant) {
        match event {
            Event::Configured(named) => {
                self.configure(named, now);
                self.each(|section| section.ask(Request::Shape, now));
            }
            Event::RolledBack { named, stopped } => {
                self.configure(named, now);
                self.each(|section| {
                    let request = match stopped.contains(&section.interface) {
                        true => Request::Stop,
                        false => Request::RollBack,
                    };
                    section.ask(request, now);
                });
            }
            Event::Adopted(named) => self.configure(named, now),
            Event::Rates(interface) => self.each(|section| {
                if interface == section.interface {
                    section.due = Some(now);
                }
            }),
            Event::NotReleased(interface) => {
                if self.sections.iter().all(|section| section.interface != interface) {
                    self.released.push((interface, now + CONFIRMATION));
                }
            }
            Event::Device {
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
            Event::Gone(index) => self.each(|section| section.on_gone(index, now)),
            Event::Queues(index) => self.each(|section| {
                if section.has(index) {
                    section.news(now);
                }
            }),
            Event::Firewall | Event::Lost => self.each(|section| section.news(now)),
            Event::Asked(interface) => self.each(|section| {
                if interface == section.interface {
                    section.ask(Request::Shape, now);
                }
            }),
            Event::Checked(interface, outcome) => {
                if let Some(section) = self.sections.iter_mut().find(|s| s.interface == interface) {
                    section.on_checked(outcome, now);
                }
            }
        }
    }

    /// What is to be done now; none if nothing is.
    pub(super) fn next(&mut self, now: Instant) -> Option<Action> {
        if let Some(place) = self.released.iter().position(|(_, due)| *due <= now) {
            return Some(Action::Release(self.released.remove(place).0));
        }
        let section = self
            .sections
            .iter_mut()
            .find(|section| section.due.is_some_and(|due| due <= now))?;
        section.due = None;
        section.first_news = None;
        Some(Action::Check {
            interface: section.interface.clone(),
            shaped: section.shaped,
            request: std::mem::take(&mut section.request),
        })
    }

    /// When the next thing is to be done.
    pub(super) fn due(&self) -> Option<Instant> {
        let released = self.released.iter().map(|(_, due)| *due);
        let checked = self.sections.iter().filter_map(|section| section.due);
        checked.chain(released).min()
    }

    /// All of them, in the order of the configuration.
    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Interfaces that are configured no more and still shaped.
    pub(super) fn unreleased(&self) -> impl Iterator<Item = &str> {
        self.released.iter().map(|(interface, _)| interface.as_str())
    }

    fn configure(&mut self, named: Vec<Named>, now: Instant) {
        let mut before = std::mem::take(&mut self.sections);
        for Named { interface, ifb } in named {
            let known = before.iter().position(|section| section.interface == interface);
            self.sections.push(match known {
                Some(at) => Section {
                    ifb,
                    ..before.remove(at)
                },
                None => {
                    let mut section = Section::new(interface, ifb, now);
                    section.ask(Request::Shape, now);
                    section
                }
            });
        }
        self.released
            .extend(before.into_iter().map(|section| (section.interface, now)));
        // What comes back before it was released stays.
        let sections = &self.sections;
        self.released
            .retain(|(name, _)| sections.iter().all(|section| section.interface != *name));
    }

    fn each(&mut self, act: impl FnMut(&mut Section)) {
        self.sections.iter_mut().for_each(act);
    }
}

impl Section {
    fn new(interface: String, ifb: String, now: Instant) -> Self {
        Self {
            interface,
            ifb,
            state: State::New,
            why: None,
            device: None,
            ifb_device: None,
            since: now,
            shaped: None,
            due: None,
            first_news: None,
            request: Request::Look,
            failures: 0,
            repairs: VecDeque::new(),
            applied: 0,
            repaired: 0,
            changes: Vec::new(),
        }
    }

    /// Whether it waits to be looked at because of news.
    pub(super) fn has_news(&self) -> bool {
        self.first_news.is_some()
    }

    fn has(&self, index: u32) -> bool {
        let is_it = |device: &Option<Device>| device.is_some_and(|device| device.index == index);
        is_it(&self.device) || is_it(&self.ifb_device)
    }

    fn on_device(&mut self, name: &str, device: Device, now: Instant) {
        if name == self.ifb {
            if self.ifb_device.replace(device) != Some(device) {
                self.news(now);
            }
        } else if name == self.interface {
            let before = self.device.replace(device);
            if before == Some(device) {
                return;
            }
            if before.is_none_or(|before| before.index != device.index) {
                self.fresh();
            }
            self.news(now);
        } else if self.device.is_some_and(|known| known.index == device.index) {
            // It has another name now.
            self.device = None;
            self.news(now);
        } else if self.has(device.index) {
            self.ifb_device = None;
            self.news(now);
        }
    }

    fn on_gone(&mut self, index: u32, now: Instant) {
        if !self.has(index) {
            return;
        }
        if self.device.is_some_and(|device| device.index == index) {
            self.device = None;
        } else {
            self.ifb_device = None;
        }
        self.news(now);
    }

    /// Something happened that may concern it.
    fn news(&mut self, now: Instant) {
        if self.state == State::Contested && self.due.is_some() {
            // The other program's next change is no reason to begin again.
            return;
        }
        let in_a_burst = self.first_news.is_some();
        let first = *self.first_news.get_or_insert(now);
        let settled = (now + SETTLE).min(first + MOST_SETTLE);
        self.due = Some(match self.due {
            // What was due sooner for another reason stays so.
            Some(due) if !in_a_burst => due.min(settled),
            _ => settled,
        });
    }

    /// A device without a past.
    fn fresh(&mut self) {
        self.failures = 0;
        self.repairs.clear();
        if self.state == State::Contested {
            self.due = None;
            self.enter(State::New, None, self.since);
        }
    }

    fn ask(&mut self, request: Request, now: Instant) {
        self.fresh();
        self.request = request;
        self.first_news = None;
        self.due = Some(now);
    }

    fn on_checked(&mut self, outcome: Outcome, now: Instant) {
        // News during the check wait for their own.
        let mut due = now + LOOK;
        match outcome {
            Outcome::Absent(why) => {
                self.device = None;
                self.shaped = None;
                self.failures = 0;
                // That it was renamed is found once.
                let known = self.why.take().filter(|_| self.state == State::Waiting);
                let why = why
                    .or(known)
                    .unwrap_or_else(|| format!("there is no network device {}", self.interface));
                self.enter(State::Waiting, Some(why), now);
            }
            Outcome::AsPlanned { index } => {
                self.shaped = Some(index);
                self.failures = 0;
                self.enter(State::Shaped, None, now);
            }
            Outcome::Changed { index, changes, own } => {
                self.failures = 0;
                self.applied += 1;
                self.changes = changes;
                // Shaped before on the same device: somebody else has undone it.
                let was_shaped = self.shaped.replace(index) == Some(index) && self.state == State::Shaped;
                let others = was_shaped && !own;
                self.enter(State::Shaped, None, now);
                if others {
                    due = self.after_a_repair(now);
                }
            }
            Outcome::Drifted { index, differences } => {
                self.shaped = Some(index);
                let why = format!("the kernel holds something else: {}", differences.join("; "));
                self.enter(State::Drifted, Some(why), now);
            }
            Outcome::Failed(why) => {
                let wait = Nanos(RETRY.0 << self.failures.min(16)).min(MOST_RETRY);
                self.failures += 1;
                due = now + wait;
                self.enter(State::Failed, Some(why), now);
            }
            // It stays so, whatever news there are: only who asks ends it.
            Outcome::Stopped => {
                let why = "stopped by hand; 'sqm start' or a reload shapes it again".to_owned();
                self.enter(State::Stopped, Some(why), now);
            }
            Outcome::Unconfirmed => {
                due = now + CONFIRMATION;
                let why = "a change waits for 'sqm confirm'".to_owned();
                self.enter(State::Unconfirmed, Some(why), now);
            }
            // It is not waited for: who feeds a watchdog must not hang on somebody's search for rates.
            Outcome::Busy { request } => {
                due = now + CONFIRMATION;
                // A later request counts.
                if self.request == Request::Look {
                    self.request = request;
                }
                let why =
                    "another program of sqm is changing the queues; they are looked at when it has ended"
                        .to_owned();
                self.enter(State::Unconfirmed, Some(why), now);
            }
        }
        self.due = Some(self.due.map_or(due, |news| news.min(due)));
    }

    /// When to look again after a change of others was undone.
    fn after_a_repair(&mut self, now: Instant) -> Instant {
        self.repaired += 1;
        self.repairs.push_back(now);
        while self
            .repairs
            .front()
            .is_some_and(|first| now.since(*first) > CONTEST)
        {
            self.repairs.pop_front();
        }
        if self.repairs.len() < MOST_REPAIRS {
            return now + LOOK;
        }
        self.repairs.clear();
        let why = format!(
            "another program has changed the queues {MOST_REPAIRS} times within {} s and each time they were put back; \
             giving way to it for {} s: {}",
            CONTEST.0 / 1_000_000_000,
            CONTEST.0 / 1_000_000_000,
            self.changes.join("; ")
        );
        self.enter(State::Contested, Some(why), now);
        self.due = None;
        now + CONTEST
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
