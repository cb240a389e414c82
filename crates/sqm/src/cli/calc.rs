//! `sqm calc`: calculations about lines and queues. The formulas are those of `sqm_plan::arithmetic` and of CAKE
//! itself.

mod goodput;
pub(crate) mod line;
mod links;
mod packet;
mod queue;
mod shape;
mod tin;

use std::process::ExitCode;

use serde::Serialize;
use sqm_core::units::{Nanos, Rate};

use crate::json;
use sqm_process::failure::Failure;

/// Calculate numbers for a configuration; reads and changes nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm calc links
  sqm calc goodput 100mbit --link docsis
  sqm calc gross 93.39mbit --link ethernet-vlan-pppoe --timestamps
  sqm calc shape --advertised 7000kbit 768kbit
  sqm calc packet --link adsl-pppoe-llc
  sqm calc fifo 1mbit --packets 250
  sqm calc latency 1mbit
  sqm calc tin ef")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Fifo(queue::Fifo),
    Goodput(goodput::Goodput),
    Gross(goodput::Gross),
    Latency(queue::Latency),
    Links(links::Links),
    Packet(packet::Packet),
    Shape(shape::Shape),
    Tin(tin::Tin),
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.what {
            What::Fifo(fifo) => fifo.run(),
            What::Goodput(goodput) => goodput.run(),
            What::Gross(gross) => gross.run(),
            What::Latency(latency) => latency.run(),
            What::Links(links) => links.run(),
            What::Packet(packet) => packet.run(),
            What::Shape(shape) => shape.run(),
            What::Tin(tin) => tin.run(),
        }
    }
}

/// Prints an answer as JSON or as text.
fn print<T: Serialize>(
    answer: &T,
    json: bool,
    words: impl FnOnce(&T) -> String,
) -> Result<ExitCode, Failure> {
    if json {
        json::print(&json::object(answer))?;
    } else {
        out!("{}", words(answer));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints rows as JSON or as text.
fn print_rows<T: Serialize>(
    rows: &[T],
    json: bool,
    words: impl FnOnce(&[T]) -> String,
) -> Result<ExitCode, Failure> {
    if json {
        json::print(&json::list(rows))?;
    } else {
        out!("{}", words(rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn mbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}

fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}
