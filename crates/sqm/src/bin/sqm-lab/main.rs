//! `sqm-lab`: tools for development that no router needs. A virtual home network on a real kernel, the demonstration,
//! and benches.

// Standard output may be closed or full. The macros of `sqm_process` handle that; `println!` would panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate sqm_process;

mod autorate;
mod bench;
mod demo;
mod fleet_demo;
mod home;
mod progress;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sqm_process::Failure;

/// A virtual home network on a real kernel for trying settings, a demonstration, and benchmarks. Needs no privileges.
///
/// The hosts of the network are h1 and h2 (the home), router (its wan0 is the interface to shape), modem (the bloated
/// line), core (the delay) and server (10.66.0.2, fd00:66::2). All see this machine's files read-only, and the sqm
/// beside this program; what they write is gone when the lab ends.
#[derive(Parser)]
#[command(name = "sqm-lab", version, max_term_width = 110)]
#[command(after_help = "Examples:
  sqm-lab up --line cable24
  sqm-lab run server -- sh -c 'sqm serve >/dev/null 2>&1 &'
  sqm-lab run h1 -- sqm test 10.66.0.2
  sqm-lab shell router
  sqm-lab forward router 8080
  sqm-lab down")]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Home(home::Command),
    Demo(demo::Args),
    FleetDemo(fleet_demo::Args),
    Bench(bench::Args),
    Autorate(autorate::Args),
    #[command(hide = true, disable_help_flag = true)]
    AutorateBench(autorate::FormerName),
}

fn main() -> ExitCode {
    sqm::main::<Lab>()
}

impl sqm::Program for Lab {
    const GROUPS: &'static [(&'static str, &'static [&'static str])] = &[
        (
            "The virtual home",
            &["up", "run", "shell", "forward", "lines", "down"],
        ),
        (
            "Demonstration and benchmarks",
            &["demo", "fleet-demo", "bench", "autorate"],
        ),
    ];

    fn is_output_its_product(&self) -> bool {
        match &self.command {
            Command::Home(command) => command.is_output_its_product(),
            Command::Demo(_) | Command::FleetDemo(_) => false,
            Command::Bench(_) | Command::Autorate(_) | Command::AutorateBench(_) => true,
        }
    }

    fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Home(command) => command.run(),
            Command::Demo(args) => args.run(),
            Command::FleetDemo(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Autorate(args) => args.run(),
            Command::AutorateBench(former) => Err(former.answer()),
        }
    }
}
