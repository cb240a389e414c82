//! Drives a queue in virtual time: polls it as a device would, without waiting.

use anyhow::anyhow;
use sqm_core::packet::Packet as _;
use sqm_core::qdisc::{Dequeued, DropReason, Drops, Qdisc};
use sqm_core::tree::Tree;
use sqm_core::units::{Instant, Rate};

use super::packet::Captured;
use crate::error::Error;

/// The latest time at which a packet may be due, nanoseconds (2^62, 146 years). CAKE's clock stops here, so a later packet would never leave.
const END: Instant = Instant(1 << 62);

/// Receives the fate of each packet.
pub(super) trait Observer {
    /// The packet left at `now`.
    fn sent(&mut self, packet: &Captured, now: Instant) -> Result<(), Error>;

    /// The packet was dropped at `now`.
    fn dropped(&mut self, packet: &Captured, now: Instant, reason: DropReason) -> Result<(), Error>;
}

/// A queue, and the device that it feeds.
pub(super) struct Engine<O> {
    pub(super) queue: Tree<Captured>,
    /// The device's own rate. Without one the device takes each packet at once, and the queue's shaper sets the pace.
    link: Option<Rate>,
    pub(super) observer: O,
    /// When to poll next without an arrival: the queue's wake-up, or the end of a transmission.
    timer: Option<Instant>,
    transmitting: bool,
}

impl<O: Observer> Engine<O> {
    pub(super) fn new(queue: Tree<Captured>, link: Option<Rate>, observer: O) -> Self {
        Self {
            queue,
            link,
            observer,
            timer: None,
            transmitting: false,
        }
    }

    /// Advances the clock to the packet's arrival and hands the packet to the queue.
    pub(super) fn arrive(&mut self, packet: Captured) -> Result<(), Error> {
        let now = packet.arrived;
        self.run_before(now)?;
        let mut drops = Vec::new();
        self.queue.enqueue(packet, now, &mut drops);
        self.dropped(now, &drops)?;
        if !self.transmitting {
            self.poll(now)?;
        }
        Ok(())
    }

    /// Runs until the queue is empty, without further arrivals.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        while let Some(now) = self.timer {
            self.wake(now)?;
        }
        Ok(())
    }

    fn run_before(&mut self, now: Instant) -> Result<(), Error> {
        while let Some(due) = self.timer.filter(|due| *due < now) {
            self.wake(due)?;
        }
        Ok(())
    }

    fn wake(&mut self, now: Instant) -> Result<(), Error> {
        if now >= END {
            let error = anyhow!("at this rate packets would wait for more than 36 years");
            return Err(Error::Input(error));
        }
        self.timer = None;
        self.transmitting = false;
        self.poll(now)
    }

    /// Dequeues packets until the device is busy or the queue has none to send.
    fn poll(&mut self, now: Instant) -> Result<(), Error> {
        self.timer = None;
        loop {
            let mut drops = Vec::new();
            let outcome = self.queue.dequeue(now, &mut drops as &mut dyn Drops<_>);
            self.dropped(now, &drops)?;
            match outcome {
                Dequeued::Packet(packet) => {
                    self.observer.sent(&packet, now)?;
                    if let Some(rate) = self.link {
                        self.transmitting = true;
                        self.timer = Some(Instant(now.0.saturating_add(serialisation(packet.len(), rate))));
                        return Ok(());
                    }
                }
                Dequeued::NotBefore(later) => {
                    // A wake-up that is not later than now would be an endless loop.
                    self.timer = Some(later.max(Instant(now.0.saturating_add(1))));
                    return Ok(());
                }
                Dequeued::Empty => return Ok(()),
            }
        }
    }

    fn dropped(&mut self, now: Instant, drops: &[(Captured, DropReason)]) -> Result<(), Error> {
        drops
            .iter()
            .try_for_each(|(packet, reason)| self.observer.dropped(packet, now, *reason))
    }
}

/// The time that a frame takes on a link, nanoseconds.
fn serialisation(length: u32, rate: Rate) -> u64 {
    let bits = u128::from(length) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(rate.bits_per_sec().max(1))).unwrap_or(u64::MAX)
}
