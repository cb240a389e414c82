//! `sqm calc fifo` and `sqm calc latency`: the queue delay of packets in a FIFO and in a managed queue.

use std::process::ExitCode;

use serde::Serialize;
use sqm_core::cake::Cake;
use sqm_core::flow_hash::HashKey;
use sqm_core::frame::Frame;
use sqm_core::qdisc::Environment;
use sqm_core::rng::Xorshift;
use sqm_core::spec::cake::{Cake as Spec, Tins};
use sqm_core::units::{Instant, Nanos, Rate};
use sqm_plan::line_rate;
use sqm_plan::{arithmetic, recipes};

use super::line::Line;
use super::{mbit, millis, print};
use crate::cli::duration::parse_delay;
use sqm_process::failure::Failure;

/// The delay of a full plain queue, such as a modem's buffer; or the number of packets that a measured delay means.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc fifo 1gbit --packets 1000              12 ms
  sqm calc fifo 1mbit --packets 250 --overhead 0  3000 ms
  sqm calc fifo 1mbit --delay 3000ms --overhead 0 250 packets")]
pub(super) struct Fifo {
    /// Rate at which the queue is emptied.
    #[arg(value_parser = line_rate::parse)]
    rate: Rate,
    /// Packets in the queue.
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "delay",
        conflicts_with = "delay"
    )]
    packets: Option<u64>,
    /// The latency under load, less that of the idle line.
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    delay: Option<Nanos>,
    /// Size of the IP packets, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..=65535))]
    size: u32,
    #[command(flatten)]
    line: Line,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// The latency to expect under load behind a shaper of this rate, with CAKE and with fq_codel.
///
/// A packet of a sparse flow waits for the packet that is being sent: at most the time of one full packet. A flow that
/// fills the line waits in its own queue, for about CoDel's target if it reacts to drops and marks. CAKE computes its
/// target itself; for fq_codel it is the target that 'itarget auto' and 'etarget auto' give.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc latency 1mbit
  sqm calc latency 20mbit --rtt 30ms --tins diffserv4 --json")]
pub(super) struct Latency {
    /// Shaped rate.
    #[arg(value_parser = line_rate::parse)]
    rate: Rate,
    /// The value of CAKE's option rtt.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_delay)]
    rtt: Nanos,
    /// CAKE's tins.
    #[arg(long, value_name = "MODE", default_value = "besteffort", value_parser = super::tin::parse_tins)]
    tins: Tins,
    #[command(flatten)]
    line: Line,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Fifo {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let framing = self.line.framing();
        let packets = match (self.packets, self.delay) {
            (None, Some(delay)) => arithmetic::queued_packets(delay, self.size, &framing, self.rate),
            (packets, _) => packets.unwrap_or_default(),
        };
        let answer = Wait {
            rate_bits_per_sec: self.rate.bits_per_sec(),
            packets,
            packet_bytes: self.size,
            on_the_line_bytes: framing.line_len(self.size),
            packets_per_sec: arithmetic::packets_per_sec(self.rate, self.size, &framing),
            delay_ms: millis(arithmetic::queue_delay(packets, self.size, &framing, self.rate)),
        };
        print(&answer, self.json, |answer| {
            format!(
                "{} packets of {} bytes, {} on the line, wait {:.1} ms at {:.3} Mbit/s ({} packets/s)\n",
                answer.packets,
                answer.packet_bytes,
                answer.on_the_line_bytes,
                answer.delay_ms,
                mbit(self.rate),
                answer.packets_per_sec
            )
        })
    }
}

#[derive(Serialize)]
struct Wait {
    rate_bits_per_sec: u64,
    packets: u64,
    packet_bytes: u32,
    on_the_line_bytes: u32,
    packets_per_sec: u64,
    delay_ms: f64,
}

impl Latency {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let framing = self.line.framing();
        let (target, interval) = recipes::auto_target(self.rate);
        let mut queues = vec![Managed {
            queue: "fq_codel".to_owned(),
            target_ms: millis(target),
            interval_ms: millis(interval),
        }];
        queues.extend(self.cake());
        let one = arithmetic::queue_delay(1, self.line.mtu(), &framing, self.rate);
        let answer = Expected {
            rate_bits_per_sec: self.rate.bits_per_sec(),
            sparse_flow_most_ms: millis(one),
            queues,
        };
        print(&answer, self.json, |answer| {
            let mut text = format!(
                "at {:.3} Mbit/s a sparse flow waits at most {:.2} ms, the time of one full packet;\n\
                 a flow that fills the line waits for about the target:\n",
                mbit(self.rate),
                answer.sparse_flow_most_ms
            );
            for queue in &answer.queues {
                text += &format!(
                    "  {:<20} target {:>8.2} ms, interval {:>8.2} ms\n",
                    queue.queue, queue.target_ms, queue.interval_ms
                );
            }
            text
        })
    }

    /// The parameters that CAKE itself derives from its rate and rtt.
    fn cake(&self) -> Vec<Managed> {
        let spec = Spec {
            bandwidth: Some(self.rate),
            rtt: self.rtt,
            tins: self.tins,
            ..Spec::default()
        };
        let environment = Environment::ethernet(Instant(1), HashKey(0, 0));
        let cake = Cake::<Frame<Vec<u8>>, _>::new(&spec, &environment, Xorshift::new(1));
        let tins = cake.stats().tins.into_iter();
        tins.map(|tin| Managed {
            queue: format!("cake, {}", tin.name),
            target_ms: millis(tin.target),
            interval_ms: millis(tin.interval),
        })
        .collect()
    }
}

#[derive(Serialize)]
struct Expected {
    rate_bits_per_sec: u64,
    sparse_flow_most_ms: f64,
    queues: Vec<Managed>,
}

#[derive(Serialize)]
struct Managed {
    queue: String,
    target_ms: f64,
    interval_ms: f64,
}
