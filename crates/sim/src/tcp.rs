//! A sender with CUBIC congestion control (RFC 9438) and HyStart's delay rule. It has endless data while it is active.
//!
//! Simplified: each packet is acknowledged by itself, lost packets are replaced by new data, and bursts are not paced.

use sqm_core::units::{Instant, Nanos};

/// The congestion control of one flow. Windows are in packets.
#[derive(Clone, Debug)]
pub struct Sender {
    active: bool,
    window: f64,
    /// The part of the window that is still to be given up after a loss.
    excess: f64,
    slow_start_threshold: f64,
    in_flight: u32,
    next_sequence: u64,
    /// Losses before this sequence number belong to a congestion event that has been handled.
    recovery_until: u64,
    /// Incremented by a timeout: packets sent before no longer count.
    epoch: u32,
    rtt_least: Option<Nanos>,
    rtt_smoothed: Nanos,
    round: Round,
    cubic: Option<Cubic>,
    window_max: f64,
    progress_at: Instant,
    timeout: Nanos,
}

/// A round: the acknowledgements of one window.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The first sequence number of the next round.
    ends: u64,
    answers: u32,
    least: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Cubic {
    began: Instant,
    /// Time until the window reaches its old maximum, seconds (K in RFC 9438).
    k: f64,
    origin: f64,
    /// The window that Reno would have (RFC 9438 section 4.3).
    reno: f64,
}

/// Identifies a packet when it is acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Sequence number of the packet.
    pub sequence: u64,
    /// When it was sent.
    pub sent: Instant,
    epoch: u32,
}

/// Initial window, packets (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
const LEAST_WINDOW: f64 = 2.0;
/// RFC 9438 section 4.6 and 5.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// The minimum of the retransmission timeout (RFC 6298 section 2.4).
const TIMEOUT: Nanos = Nanos::from_millis(1000);
const TIMEOUT_MAX: Nanos = Nanos::from_millis(60_000);
/// HyStart (RFC 9406 section 4.2): slow start ends when the minimum round trip of a round, with at least this many acknowledgements, has
/// grown by an eighth, limited to these bounds. The minimum counts because later packets of a burst wait for the earlier ones.
const ANSWERS: u32 = 8;
const DELAY_LEAST: u64 = 4_000_000;
const DELAY_MOST: u64 = 16_000_000;

impl Sender {
    /// A sender without data.
    pub const fn new() -> Self {
        Self {
            active: false,
            window: INITIAL_WINDOW,
            excess: 0.0,
            slow_start_threshold: f64::MAX,
            in_flight: 0,
            next_sequence: 0,
            recovery_until: 0,
            epoch: 0,
            rtt_least: None,
            rtt_smoothed: Nanos(0),
            round: Round {
                ends: 0,
                answers: 0,
                least: Nanos(0),
            },
            cubic: None,
            window_max: 0.0,
            progress_at: Instant(0),
            timeout: TIMEOUT,
        }
    }

    /// Begins or ends a transfer.
    pub const fn set_active(&mut self, active: bool, now: Instant) {
        if active && !self.active {
            self.window = INITIAL_WINDOW;
            self.excess = 0.0;
            self.slow_start_threshold = f64::MAX;
            self.cubic = None;
            self.progress_at = now;
            self.timeout = TIMEOUT;
            self.round.ends = self.next_sequence;
        }
        self.active = active;
    }

    /// The next packet, if the window allows one.
    pub fn send(&mut self, now: Instant) -> Option<Ticket> {
        if !self.active || f64::from(self.in_flight) >= self.window {
            return None;
        }
        if self.in_flight == 0 {
            self.progress_at = now;
        }
        self.in_flight += 1;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Some(Ticket {
            sequence,
            sent: now,
            epoch: self.epoch,
        })
    }

    /// Handles an acknowledgement.
    pub fn on_ack(&mut self, now: Instant, ticket: Ticket) {
        let rtt = now.since(ticket.sent);
        if ticket.epoch != self.epoch {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.progress_at = now;
        if self.excess > 0.0 {
            // Proportional rate reduction (RFC 6937): the window shrinks as ACKs arrive, not at once.
            let less = self.excess.min(1.0 - BETA);
            self.excess -= less;
            self.window -= less;
        }
        let least = self.rtt_least.map_or(rtt, |least| least.min(rtt));
        self.rtt_least = Some(least);
        self.rtt_smoothed = if self.rtt_smoothed.0 == 0 {
            rtt
        } else {
            Nanos((7 * self.rtt_smoothed.0 + rtt.0) / 8)
        };
        self.timeout = TIMEOUT.max(Nanos(self.rtt_smoothed.0 * 2));
        if self.window < self.slow_start_threshold {
            self.window += 1.0;
            self.note_round(ticket, rtt);
            let limit = least.0 + (least.0 / 8).clamp(DELAY_LEAST, DELAY_MOST);
            if self.round.answers >= ANSWERS && self.round.least.0 > limit {
                self.slow_start_threshold = self.window;
            }
        } else if self.excess <= 0.0 {
            self.grow(now);
        }
    }

    fn note_round(&mut self, ticket: Ticket, rtt: Nanos) {
        if ticket.sequence >= self.round.ends {
            self.round = Round {
                ends: self.next_sequence,
                answers: 0,
                least: rtt,
            };
        }
        self.round.answers += 1;
        self.round.least = self.round.least.min(rtt);
    }

    /// Handles the loss of a packet.
    pub fn on_loss(&mut self, now: Instant, ticket: Ticket) {
        if ticket.epoch != self.epoch {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.progress_at = now;
        if ticket.sequence < self.recovery_until {
            return;
        }
        self.recovery_until = self.next_sequence;
        // Fast convergence.
        self.window_max = if self.window < self.window_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.slow_start_threshold = (self.window * BETA).max(LEAST_WINDOW);
        self.excess = (self.window - self.slow_start_threshold).max(0.0);
        self.cubic = None;
    }

    /// Handles the retransmission timeout: after a silence all packets in flight count as lost. To be called regularly.
    pub fn on_time(&mut self, now: Instant) {
        if self.in_flight == 0 || now.since(self.progress_at) < self.timeout {
            return;
        }
        self.slow_start_threshold = (self.window / 2.0).max(LEAST_WINDOW);
        self.window = 1.0;
        self.excess = 0.0;
        self.in_flight = 0;
        self.epoch += 1;
        self.cubic = None;
        self.progress_at = now;
        self.timeout = Nanos(self.timeout.0 * 2).min(TIMEOUT_MAX);
    }

    /// RFC 9438 sections 4.2 and 4.3.
    fn grow(&mut self, now: Instant) {
        let rtt = self.rtt_smoothed.0 as f64 / 1e9;
        let window = self.window;
        let window_max = self.window_max.max(window);
        let cubic = self.cubic.get_or_insert_with(|| Cubic {
            began: now,
            k: cube_root((window_max - window) / C),
            origin: window_max,
            reno: window,
        });
        let t = now.since(cubic.began).0 as f64 / 1e9 + rtt - cubic.k;
        let target = (cubic.origin + C * t * t * t).clamp(window, 1.5 * window);
        cubic.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / window;
        self.window = (window + (target - window) / window).max(cubic.reno);
    }
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

/// The cube root by Newton's method, so that it does not depend on the platform's mathematical library.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = if x > 1.0 { x } else { 1.0 };
    for _ in 0..100 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sender: &mut Sender, now: Instant) -> Vec<Ticket> {
        std::iter::from_fn(|| sender.send(now)).collect()
    }

    #[test]
    fn cube_roots_are_accurate() {
        for n in [0.001, 0.5, 1.0, 8.0, 1234.5, 1e9] {
            let root = cube_root(n);
            assert!((root * root * root / n - 1.0).abs() < 1e-9, "{n}");
        }
    }

    #[test]
    fn the_window_doubles_until_a_loss_and_is_then_reduced_once() {
        let mut sender = Sender::new();
        let mut now = Instant(1_000_000_000);
        sender.set_active(true, now);
        let first = sent(&mut sender, now);
        assert_eq!(first.len(), 10);
        now = now + Nanos::from_millis(20);
        first.iter().for_each(|ticket| sender.on_ack(now, *ticket));
        let second = sent(&mut sender, now);
        assert_eq!(second.len(), 20);
        sender.on_loss(now, second[0]);
        sender.on_loss(now, second[1]);
        second[2..].iter().for_each(|ticket| sender.on_ack(now, *ticket));
        // 20 * 0.7, and the little that CUBIC has added since.
        assert_eq!(sender.window as u32, 14);
    }

    #[test]
    fn slow_start_ends_when_a_whole_round_is_late_not_for_the_end_of_a_burst() {
        let mut sender = Sender::new();
        let mut now = Instant(1_000_000_000);
        sender.set_active(true, now);
        let round = |sender: &mut Sender, now: Instant, least: u64| {
            let tickets = sent(sender, now);
            let answered = |index: u64| now + Nanos::from_millis(least + index);
            for (ticket, index) in tickets.iter().zip(0..) {
                sender.on_ack(answered(index), *ticket);
            }
            answered(tickets.len() as u64)
        };
        now = round(&mut sender, now, 20);
        now = round(&mut sender, now, 20);
        assert_eq!(sender.window as u32, 40);
        now = round(&mut sender, now, 25);
        assert!(sender.window < 50.0, "{}", sender.window);
        let before = sender.window;
        round(&mut sender, now, 20);
        assert!(sender.window < before + 2.0, "{}", sender.window);
    }

    #[test]
    fn a_timeout_restarts_with_one_packet() {
        let mut sender = Sender::new();
        let now = Instant(1_000_000_000);
        sender.set_active(true, now);
        let lost = sent(&mut sender, now);
        let later = now + Nanos::from_millis(1000);
        sender.on_time(later);
        sender.on_ack(later, lost[0]);
        assert_eq!(sent(&mut sender, later).len(), 1);
    }
}
