//! Events of the kernel: waits for them, and passes them to the reconciler.

use std::os::fd::AsFd;

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, poll};
use sqm_core::units::Nanos;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::monitor::KernelEvent;

use super::Daemon;
use crate::clock::{monotonic, timespec};
use crate::reconciler::Event;
use crate::waker;
use sqm_process::failure::Failure;
use tracing::debug;

impl Daemon {
    /// Waits for a kernel event, a signal or a wake-up by another thread, but not longer than `timeout`; `None` waits for ever.
    pub(super) fn wait(&self, timeout: Option<Nanos>) -> Result<(), Failure> {
        let mut watched: Vec<PollFd<'_>> = self
            .monitor
            .descriptors()
            .chain([self.wake_ups.as_fd(), self.signals.pipe.as_fd()])
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let timeout = timeout.map(timespec);
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::Failed(anyhow!(error).context("cannot wait for events"))),
        }
        self.wake_ups.clear();
        waker::clear(&self.signals.pipe);
        Ok(())
    }

    /// Passes all pending kernel events to the reconciler.
    pub(super) fn read_events(&mut self) -> Result<(), Failure> {
        let events = self.monitor.read().context("cannot read the kernel's events")?;
        let now = monotonic();
        for event in events {
            debug!("the kernel reports {event:?}");
            let event = match event {
                KernelEvent::LinkChanged(link) => device_changed(link),
                KernelEvent::LinkRemoved(index) => Event::DeviceRemoved(index),
                KernelEvent::QdiscsChanged(index) => Event::QueuesChanged(index),
                KernelEvent::FirewallChanged => Event::FirewallChanged,
                KernelEvent::EventsLost => {
                    self.read_devices()?;
                    Event::EventsLost
                }
            };
            self.reconciler.handle(event, now);
        }
        Ok(())
    }

    /// Reads the state of all devices and passes it to the reconciler: at the start, for new sections, and after lost events.
    pub(super) fn read_devices(&mut self) -> Result<(), Failure> {
        let links = self.shaper.links()?;
        let now = monotonic();
        for link in links {
            self.reconciler.handle(device_changed(link), now);
        }
        Ok(())
    }
}

fn device_changed(link: Link) -> Event {
    Event::DeviceChanged {
        index: link.index,
        name: link.name,
        mtu: link.mtu,
        up: link.up,
        carrier: link.carrier,
    }
}
