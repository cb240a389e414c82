//! Reads and checks the file of a scenario.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

/// One scenario.
#[derive(Deserialize)]
pub struct Vector {
    /// The name under which its outcome is reported.
    pub name: String,
    pub(super) qdisc: String,
    #[serde(default)]
    pub(super) profile: Profile,
    pub(super) tc: Words,
    pub(super) child: Option<String>,
    pub(super) mtu: u32,
    pub(super) origin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) truesize: Truesize,
    pub(super) random: Option<Random>,
    pub(super) dequeue: Polling,
    #[serde(default)]
    pub(super) events: Vec<Change>,
    /// The packets that arrive.
    pub packets: Vec<Packet>,
    pub(super) expect: Option<Expect>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Profile {
    #[default]
    Kernel,
    Fixed,
}

/// The parameters of one qdisc, or whole `tc` commands.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    Commands(Vec<String>),
}

/// The memory that a packet is charged (its truesize), as a function of its length.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Truesize {
    /// `len+N`.
    Plus(u32),
    /// `N+next_power_of_two(len+M)`.
    PowerOfTwo(u32, u32),
}

impl Truesize {
    pub(super) fn of(self, length: u32) -> u32 {
        match self {
            Self::Plus(more) => length.saturating_add(more),
            Self::PowerOfTwo(more, within) => length
                .saturating_add(within)
                .checked_next_power_of_two()
                .and_then(|power| power.checked_add(more))
                .unwrap_or(u32::MAX),
        }
    }
}

impl TryFrom<String> for Truesize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plus = |text: &str| text.strip_prefix("len+")?.parse().ok();
        let power = || {
            let (more, rest) = text.split_once("+next_power_of_two(")?;
            let within = plus(rest.strip_suffix(')')?)?;
            Some(Self::PowerOfTwo(more.parse().ok()?, within))
        };
        let model = plus(&text).map(Self::Plus).or_else(power);
        model.ok_or_else(|| format!("unknown truesize model '{text}'"))
    }
}

/// The random numbers that Linux's queue drew.
#[derive(Deserialize)]
pub(super) struct Random {
    pub(super) r16: Draws<u16>,
    pub(super) r32: Draws<u32>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Draws<N> {
    Always(N),
    InOrder(Vec<N>),
}

/// The times at which the queue is polled.
#[derive(Clone, Copy, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Polling {
    /// At every arrival and wake-up, until the queue has no packet to send.
    Drain,
    /// By a link that sends one packet after another.
    Link {
        #[serde(rename = "rate_bps")]
        bits_per_sec: u64,
    },
    /// At fixed times, until the queue has no packet to send.
    Tick { first_ns: u64, period_ns: u64 },
}

/// A reconfiguration.
#[derive(Deserialize)]
pub(super) struct Change {
    pub(super) t_ns: u64,
    pub(super) change: String,
}

/// One arrival.
#[derive(Deserialize)]
pub struct Packet {
    pub(super) id: u64,
    pub(super) t_ns: u64,
    pub(super) len: u32,
    #[serde(default = "ethernet")]
    pub(super) net_off: u16,
    #[serde(default)]
    pub(super) proto: Protocol,
    #[serde(default)]
    pub(super) dscp: u8,
    #[serde(default)]
    pub(super) ecn: u8,
    #[serde(default)]
    pub(super) flow_hash: u32,
    #[serde(default)]
    pub(super) src_hash: u32,
    #[serde(default)]
    pub(super) dst_hash: u32,
    #[serde(default)]
    pub(super) mark: u32,
    pub(super) class: Option<String>,
    pub(super) tcp: Option<Tcp>,
}

const fn ethernet() -> u16 {
    14
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protocol {
    #[default]
    Ipv4,
    Ipv6,
    Arp,
    Other,
}

#[derive(Deserialize)]
pub(super) struct Tcp {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) sport: u16,
    pub(super) dport: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) payload: u32,
    #[serde(default, rename = "options_hex")]
    pub(super) options: HexBytes,
}

#[derive(Default, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct HexBytes(pub(super) Vec<u8>);

impl TryFrom<String> for HexBytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let byte = |pair: &[u8]| {
            let digit = |c: u8| char::from(c).to_digit(16);
            Some((digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?) as u8)
        };
        let bytes: Option<_> = text.as_bytes().chunks(2).map(byte).collect();
        bytes
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not bytes in hexadecimal"))
    }
}

/// The recorded outcome of Linux's queue.
#[derive(Deserialize)]
pub(super) struct Expect {
    /// `[id, t_ns, ce]`, and the DS field where the scenario washes.
    pub(super) sent: Vec<Sent>,
    /// `[id, t_ns, reason]`.
    pub(super) dropped: Vec<(u64, u64, String)>,
    #[serde(rename = "final")]
    pub(super) counters: Map<String, Value>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
pub(super) enum Sent {
    WithDsField(u64, u64, u8, u8),
    Plain(u64, u64, u8),
}

pub(super) fn load(file: &Path) -> Result<Vector> {
    let name = file.display();
    let text = std::fs::read(file).with_context(|| format!("cannot read the vector {name}"))?;
    let vector: Vector = serde_json::from_slice(&text).with_context(|| format!("{name} is not a vector"))?;
    check(&vector).with_context(|| format!("{name} is not a vector"))?;
    Ok(vector)
}

/// Checks what the types cannot express.
fn check(vector: &Vector) -> Result<()> {
    /// 146 years in nanoseconds, so that sums of times cannot overflow.
    const END_OF_TIME: u64 = 1 << 62;
    ensure!(vector.end_ns <= END_OF_TIME, "end_ns is beyond 2^62");
    match vector.dequeue {
        Polling::Link { bits_per_sec: 0 } => bail!("dequeue: a link needs a rate_bps above 0"),
        Polling::Tick { period_ns: 0, .. } => bail!("dequeue: ticks need a period_ns above 0"),
        _ => {}
    }
    let in_order = |times: &mut dyn Iterator<Item = u64>| {
        let mut last = vector.origin_ns;
        times
            .enumerate()
            .find(|(_, t)| std::mem::replace(&mut last, *t) > *t)
    };
    if let Some((index, t)) = in_order(&mut vector.packets.iter().map(|packet| packet.t_ns)) {
        bail!("packets[{index}] has the time {t}, which is before the previous packet or before origin_ns");
    }
    if let Some((index, t)) = in_order(&mut vector.events.iter().map(|event| event.t_ns)) {
        bail!("events[{index}] has the time {t}, which is before the previous event or before origin_ns");
    }
    let mut seen = HashSet::new();
    for (index, packet) in vector.packets.iter().enumerate() {
        ensure!(
            seen.insert(packet.id),
            "packets[{index}]: the id {} is used twice",
            packet.id
        );
        check_packet(packet).with_context(|| format!("packets[{index}], id {}", packet.id))?;
    }
    Ok(())
}

fn check_packet(packet: &Packet) -> Result<()> {
    /// More than the largest GSO packet of Linux (512 KiB).
    const MOST: u32 = 1 << 20;
    ensure!(packet.len <= MOST, "len {} is more than {MOST}", packet.len);
    ensure!(packet.dscp < 64, "dscp {} is more than 63", packet.dscp);
    ensure!(packet.ecn < 4, "ecn {} is more than 3", packet.ecn);
    let Some(tcp) = &packet.tcp else {
        return Ok(());
    };
    let ip_header = match (packet.proto, tcp.src, tcp.dst) {
        (Protocol::Ipv4, IpAddr::V4(_), IpAddr::V4(_)) => 20,
        (Protocol::Ipv6, IpAddr::V6(_), IpAddr::V6(_)) => 40,
        _ => bail!("tcp: src and dst are not addresses of its proto"),
    };
    let options = tcp.options.0.len();
    ensure!(
        options % 4 == 0 && options <= 40,
        "tcp: {options} bytes of options"
    );
    let length = u64::from(packet.net_off) + ip_header + 20 + options as u64 + u64::from(tcp.payload);
    ensure!(
        length == u64::from(packet.len),
        "headers and payload have {length} bytes, but len is {}",
        packet.len
    );
    Ok(())
}
