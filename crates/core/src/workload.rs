//! Synthetic traffic for benchmarks: named workloads, and a loop that keeps a queue at a steady backlog.
//!
//! Everything is determined by the definition, so that two builds see the same packets at the same virtual times, and so
//! that figures of other implementations, measured with the same definition, can stand beside ours.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

use crate::flow_hash::HashKey;
use crate::frame::{Frame, LinkType};
use crate::narrow::{fits_u16, fits_usize};
use crate::qdisc::{Dequeued, DropReason, Drops, Environment, Qdisc};
use crate::rng::Xorshift;
use crate::spec;
use crate::tree::AnyQdisc;
use crate::units::Instant;

/// A queue and the traffic that is sent through it.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its name on the command line.
    pub name: &'static str,
    /// The queue, in `tc`'s words.
    pub qdisc: &'static str,
    /// The traffic.
    pub workload: Workload,
}

/// The loop without a queue worth the name, to subtract from the others.
pub const FIFO: &str = "pfifo limit 100000";

/// 32 flows of 8 hosts, 100 packets waiting, mixed sizes, shaped.
pub const BASE: Workload = Workload {
    flows: 32,
    hosts: 8,
    backlog: 100,
    sizes: Sizes::Imix,
    shaped: true,
};

/// The workloads whose figures are compared from one version to the next.
pub const NAMED: [Named; 11] = [
    Named {
        name: "fq_codel",
        qdisc: "fq_codel",
        workload: Workload {
            shaped: false,
            ..BASE
        },
    },
    Named {
        name: "cake",
        qdisc: "cake unlimited besteffort triple-isolate",
        workload: Workload {
            shaped: false,
            ..BASE
        },
    },
    Named {
        name: "cake-1g",
        qdisc: "cake bandwidth 1gbit besteffort triple-isolate",
        workload: BASE,
    },
    Named {
        name: "cake-1g-flows",
        qdisc: "cake bandwidth 1gbit besteffort flows",
        workload: BASE,
    },
    Named {
        name: "cake-1g-diffserv3",
        qdisc: "cake bandwidth 1gbit diffserv3 triple-isolate",
        workload: BASE,
    },
    Named {
        name: "cake-1g-diffserv4",
        qdisc: "cake bandwidth 1gbit diffserv4 triple-isolate",
        workload: BASE,
    },
    Named {
        name: "cake-1g-diffserv8",
        qdisc: "cake bandwidth 1gbit diffserv8 triple-isolate",
        workload: BASE,
    },
    Named {
        name: "cake-1g-full",
        qdisc: "cake bandwidth 1gbit diffserv4 dual-srchost ack-filter overhead 44 atm",
        workload: Workload {
            sizes: Sizes::Acks(30),
            ..BASE
        },
    },
    Named {
        name: "cake-1g-1024",
        qdisc: "cake bandwidth 1gbit besteffort triple-isolate",
        workload: Workload {
            flows: 1024,
            backlog: 1000,
            sizes: Sizes::Full,
            ..BASE
        },
    },
    Named {
        name: "cake-1g-10000",
        qdisc: "cake bandwidth 1gbit besteffort triple-isolate",
        workload: Workload {
            flows: 10_000,
            backlog: 1000,
            sizes: Sizes::Full,
            ..BASE
        },
    },
    Named {
        name: "fq_codel-10000",
        qdisc: "fq_codel",
        workload: Workload {
            flows: 10_000,
            backlog: 1000,
            sizes: Sizes::Full,
            shaped: false,
            ..BASE
        },
    },
];

/// When the loop begins: zero would be the time of timers that were never set.
pub const START: Instant = Instant(1_000_000_000);

/// A packet buffer.
pub type Buffer = Box<[u8]>;

/// The packets of the loop.
pub type Packet = Frame<Buffer>;

/// A new buffer. Allocators place these 2368 bytes apart: powers of two would all fall on the same cache sets.
pub fn buffer() -> Buffer {
    alloc::vec![0; 2352].into_boxed_slice()
}

/// The queue that `tc`'s words describe, on an Ethernet device. Any error names the word.
pub fn build(qdisc: &str) -> Result<AnyQdisc<Packet>, Box<dyn core::error::Error + Send + Sync>> {
    let spec = spec::Qdisc::parse(qdisc)?;
    let environment = Environment::ethernet(START, HashKey(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210));
    Ok(AnyQdisc::new(&spec, &environment)?)
}

/// True if a queue holds packets back to keep to a rate; false for words that cannot be read.
pub fn shapes(qdisc: &str) -> bool {
    match spec::Qdisc::parse(qdisc) {
        Ok(spec::Qdisc::Cake(cake)) => cake.bandwidth.is_some(),
        Ok(spec::Qdisc::Tbf(_)) => true,
        _ => false,
    }
}

/// The packets of a workload, and how many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Number of TCP connections.
    pub flows: u32,
    /// Number of hosts on the sending side.
    pub hosts: u32,
    /// Packets kept waiting.
    pub backlog: usize,
    /// Their lengths.
    pub sizes: Sizes,
    /// True if the queue shapes: the clock then moves 50 ns per packet, otherwise as a 10 Gbit/s wire.
    pub shaped: bool,
}

/// Lengths of the packets, link header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// 60, 590 and 1514 bytes at 7 : 4 : 1, 358 on average.
    Imix,
    /// 1514 bytes each.
    Full,
    /// This share of 66-byte acknowledgements in percent, the rest 1514 bytes; at most two arrive per dequeue.
    Acks(u64),
}

/// The packets of one workload, endlessly.
#[derive(Debug)]
pub struct Traffic {
    flows: Vec<Flow>,
    order: Vec<Entry>,
    next: usize,
}

#[derive(Clone, Debug)]
struct Flow {
    headers: [u8; HEADERS],
    ack: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: u32,
    len: u16,
}

/// Ethernet, IPv4, and TCP with the timestamp option.
const HEADERS: usize = 14 + 20 + 32;
const IP_LENGTH: usize = 14 + 2;
const TCP_ACK: usize = 14 + 20 + 8;

/// How many packets pass before the order repeats.
const ORDER: usize = 65_536;

impl Traffic {
    /// The traffic of `workload`.
    pub fn new(workload: &Workload) -> Self {
        let mut random = Xorshift::new(0x9e37_79b9_7f4a_7c15);
        let flows = (0..workload.flows)
            .map(|flow| {
                let destination = (random.next_u64() % 60_000) as u32;
                // One more draw per flow belongs to the definition: a hash for variants that bring their own.
                random.next_u64();
                Flow {
                    headers: headers(flow, flow % workload.hosts, destination),
                    ack: 0,
                }
            })
            .collect();
        let order = (0..ORDER)
            .map(|_| {
                let draw = random.next_u64();
                Entry {
                    flow: ((draw >> 32) % u64::from(workload.flows)) as u32,
                    len: workload.sizes.of(draw),
                }
            })
            .collect();
        Self {
            flows,
            order,
            next: 0,
        }
    }

    /// Writes the next packet into `buffer`.
    #[inline]
    pub fn next_into(&mut self, buffer: Buffer) -> Packet {
        let Entry { flow, len } = self.order[self.next % ORDER];
        self.next += 1;
        self.packet(flow, len, buffer)
    }

    /// Writes the next packet of `flow`, `len` bytes long, into `buffer`.
    #[inline]
    pub fn packet(&mut self, flow: u32, len: u16, mut buffer: Buffer) -> Packet {
        let flow = &mut self.flows[flow as usize];
        buffer[..HEADERS].copy_from_slice(&flow.headers);
        buffer[IP_LENGTH..IP_LENGTH + 2].copy_from_slice(&(len - 14).to_be_bytes());
        flow.ack = flow.ack.wrapping_add(2 * 1448);
        buffer[TCP_ACK..TCP_ACK + 4].copy_from_slice(&flow.ack.to_be_bytes());
        Frame::new(LinkType::Ethernet, buffer, u32::from(len))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flows,
            hosts,
            backlog,
            sizes,
            ..
        } = self;
        write!(
            f,
            "{flows} flows, {hosts} hosts, {backlog} packets waiting, {sizes}"
        )
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Imix => f.write_str("60, 590 and 1514 bytes at 7:4:1"),
            Self::Full => f.write_str("1514 bytes"),
            Self::Acks(percent) => write!(f, "1514 bytes and {percent} % acknowledgements"),
        }
    }
}

impl Sizes {
    fn of(self, draw: u64) -> u16 {
        match self {
            Self::Imix => match (draw >> 8) % 12 {
                0..7 => 60,
                7..11 => 590,
                _ => 1514,
            },
            Self::Full => 1514,
            Self::Acks(percent) if (draw >> 20) % 100 < percent => fits_u16(HEADERS as u64),
            Self::Acks(_) => 1514,
        }
    }
}

fn headers(flow: u32, host: u32, destination: u32) -> [u8; HEADERS] {
    const AF41: u8 = 34;
    const EF: u8 = 46;
    const CS1: u8 = 8;
    let dscp = match flow % 10 {
        0..6 => 0,
        6 | 7 => CS1,
        8 => AF41,
        _ => EF,
    };
    let source = u32::from(Ipv4Addr::new(10, 0, 0, 2)) + host;
    let destination = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + destination;
    let source_port = fits_u16(1024 + 7919 * u64::from(flow) % 60_000);

    let mut headers = [0; HEADERS];
    let (ethernet, rest) = headers.split_at_mut(14);
    let (ip, tcp) = rest.split_at_mut(20);
    ethernet[12..].copy_from_slice(&[0x08, 0x00]);
    ip[0] = 0x45;
    ip[1] = dscp << 2;
    ip[8] = 64;
    ip[9] = 6;
    ip[12..16].copy_from_slice(&source.to_be_bytes());
    ip[16..20].copy_from_slice(&destination.to_be_bytes());
    tcp[0..2].copy_from_slice(&source_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&443u16.to_be_bytes());
    tcp[12] = 8 << 4;
    tcp[13] = 0x10;
    tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
    headers
}

/// A queue kept at a steady backlog.
#[derive(Debug)]
pub struct Steady<Q> {
    queue: Q,
    workload: Workload,
    traffic: Traffic,
    pool: Pool,
    now: Instant,
    held: usize,
    enqueued: u64,
    dropped: u64,
}

/// Buffers at rest, used again in the order in which they came back.
#[derive(Debug)]
struct Pool {
    buffers: VecDeque<Buffer>,
    dropped: u64,
}

impl Drops<Packet> for Pool {
    fn dropped(&mut self, packet: Packet, _: DropReason) {
        self.buffers.push_back(packet.into_bytes());
        self.dropped += 1;
    }
}

impl<Q: Qdisc<Packet>> Steady<Q> {
    /// Fills `queue` to the workload's backlog, or as far as it lets itself be filled.
    pub fn new(queue: Q, workload: Workload) -> Self {
        let buffers = (0..workload.backlog + 64).map(|_| buffer()).collect();
        let mut steady = Self {
            queue,
            workload,
            traffic: Traffic::new(&workload),
            pool: Pool { buffers, dropped: 0 },
            now: START,
            held: 0,
            enqueued: 0,
            dropped: 0,
        };
        steady.fill(2 * workload.backlog);
        steady
    }

    /// Lets `packets` more in, and the others out at the queue's own pace.
    pub fn run(&mut self, packets: u64) {
        let end = self.enqueued + packets;
        let most_per_turn = match self.workload.sizes {
            Sizes::Acks(_) => 2,
            // No bound, but that a queue which refuses them all must not keep the loop for ever.
            Sizes::Imix | Sizes::Full => 2 * self.workload.backlog,
        };
        while self.enqueued < end {
            self.dequeue();
            self.fill(most_per_turn);
        }
    }

    /// Enqueues up to the backlog, `most` packets at most.
    #[inline]
    fn fill(&mut self, most: usize) {
        for _ in 0..most {
            if self.held >= self.workload.backlog {
                break;
            }
            self.enqueue();
        }
    }

    /// The queue, to look at.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// Packets let in and packets dropped so far.
    pub const fn counts(&self) -> (u64, u64) {
        (self.enqueued, self.dropped)
    }

    #[inline]
    fn enqueue(&mut self) {
        let Some(buffer) = self.pool.buffers.pop_front() else {
            return;
        };
        let packet = self.traffic.next_into(buffer);
        self.queue.enqueue(packet, self.now, &mut self.pool);
        self.enqueued += 1;
        self.held += 1;
        self.settle();
    }

    #[inline]
    fn dequeue(&mut self) {
        match self.queue.dequeue(self.now, &mut self.pool) {
            Dequeued::Packet(packet) => {
                let len = u64::from(crate::packet::Packet::len(&packet));
                self.pool.buffers.push_back(packet.into_bytes());
                self.held -= 1;
                self.now.0 += if self.workload.shaped {
                    50
                } else {
                    (len + 24) * 8 / 10
                };
            }
            Dequeued::NotBefore(at) => self.now = at,
            Dequeued::Empty => {}
        }
        self.settle();
    }

    /// Takes what the last call dropped off the count of packets that wait.
    #[inline]
    fn settle(&mut self) {
        self.held -= fits_usize(self.pool.dropped);
        self.dropped += core::mem::take(&mut self.pool.dropped);
    }
}
