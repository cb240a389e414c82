//! Any queue or tree under any program. The input has three parts with a NUL between them: a specification or `tc`
//! commands, the words of a change, and two bytes for each step.
//!
//! Nothing may panic, no packet may vanish or come back twice, and a wake-up lies in the future.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use sqm_core::flow_hash::HashKey;
use sqm_core::packet::{FlowKey, Hashes, Network, Packet, Tcp, View};
use sqm_core::profile::Profile;
use sqm_core::qdisc::{Dequeued, DropReason, Drops, Environment, Qdisc};
use sqm_core::rng::Xorshift;
use sqm_core::spec;
use sqm_core::tree::{Description, Tree};
use sqm_core::units::Instant;

const START: u64 = 1_000_000_000;

#[derive(Debug)]
struct Numbered {
    id: u32,
    len: u32,
    flow: u8,
    ds_field: u8,
}

impl Packet for Numbered {
    fn len(&self) -> u32 {
        self.len
    }

    fn view(&self) -> View {
        let flow = u32::from(self.flow);
        View {
            network_offset: 14,
            network: Network::Ipv4,
            ds_field: self.ds_field,
            key: FlowKey::Hashes(Hashes {
                flow: flow % 16 + (flow / 16) * 1024,
                source: flow % 4,
                destination: flow % 3,
            }),
        }
    }

    /// One of a few classes, or none.
    fn priority(&self) -> u32 {
        if self.flow % 4 == 0 {
            0
        } else {
            0x0001_0010 + u32::from(self.flow) % 4
        }
    }

    fn set_ce(&mut self) -> bool {
        let capable = self.ds_field & 3 != 0;
        if capable {
            self.ds_field |= 3;
        }
        capable
    }

    fn clear_dscp(&mut self) {
        self.ds_field &= 3;
    }

    fn tcp(&self) -> Option<Tcp<'_>> {
        None
    }
}

/// The content of the queue, by our own count.
#[derive(Default)]
struct Inside(BTreeSet<u32>);

impl Drops<Numbered> for Inside {
    fn dropped(&mut self, packet: Numbered, _: DropReason) {
        self.leaves(&packet);
    }
}

impl Inside {
    fn leaves(&mut self, packet: &Numbered) {
        assert!(self.0.remove(&packet.id), "{packet:?} was not queued");
    }
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let (Some(Ok(text)), Some(Ok(change)), Some(steps)) = (
        parts.next().map(std::str::from_utf8),
        parts.next().map(std::str::from_utf8),
        parts.next(),
    ) else {
        return;
    };
    let description = match spec::Qdisc::parse(text) {
        Ok(spec) => Description::single(spec),
        Err(_) => match Description::parse(text) {
            Ok(description) => description,
            Err(_) => return,
        },
    };
    for profile in [Profile::FIXED, Profile::KERNEL] {
        let environment = Environment {
            profile,
            ..Environment::ethernet(Instant(START), HashKey(1, 2))
        };
        let Ok(tree) = Tree::build(&description, &environment, || Xorshift::new(7)) else {
            return;
        };
        run(tree, change, steps);
    }
});

fn run(mut queue: Tree<Numbered>, change: &str, steps: &[u8]) {
    let mut inside = Inside::default();
    let mut now = START;
    for (id, step) in (0..).zip(steps.chunks_exact(2)) {
        let (kind, value) = (step[0], step[1]);
        match kind % 8 {
            0..4 => {
                let packet = Numbered {
                    id,
                    len: 14 + u32::from(value) * 8,
                    flow: kind / 8,
                    ds_field: value ^ kind,
                };
                inside.0.insert(id);
                queue.enqueue(packet, Instant(now), &mut inside);
            }
            4 | 5 => match queue.dequeue(Instant(now), &mut inside) {
                Dequeued::Packet(packet) => inside.leaves(&packet),
                Dequeued::NotBefore(later) => {
                    assert!(later.0 > now, "a wake-up in the past");
                    if value % 2 == 0 {
                        now = later.0;
                    }
                }
                Dequeued::Empty => assert!(inside.0.is_empty(), "it says it is empty"),
            },
            6 => {
                let _ = queue.change(change, Instant(now), &mut inside);
            }
            _ => now = now.saturating_add(1 << (value % 40)),
        }
        assert_eq!(queue.backlog().packets as usize, inside.0.len());
    }
    assert_eq!(queue.stats()[0].backlog, queue.backlog());
}
