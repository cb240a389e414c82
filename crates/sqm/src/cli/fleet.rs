//! `sqm fleet`: many routers under one hand. The operator's commands; the router's part is in the daemon.

mod documents;
mod folder;
mod history;
mod hub;
mod overview;
mod roll_out;
mod status;
mod template;
mod web;
mod when;

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use sqm_process::Failure;

/// Look after many routers: say what each should have, roll it out, see how it feels.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet hub init berlin --url tls://hub.example.net:4222    a folder with keys and a server's configuration
  nats-server --config berlin/server.conf                       the server
  sqm fleet enroll r1 --group homes --hub berlin                credentials for a router
  sqm fleet set sqm.conf --router r1 --hub berlin               one router, now
  sqm fleet roll-out start evening sqm.conf --group homes --hub berlin    step by step
  sqm fleet status --hub berlin

Exit codes: 0 done, 1 failed or a roll-out has halted, 2 wrong arguments or configuration.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Hub(hub::Hub),
    Enroll(hub::Enroll),
    Revoke(hub::Revoke),
    Plan(documents::Plan),
    Set(documents::Set),
    #[command(name = "roll-out")]
    RollOut(roll_out::Args),
    Status(status::Status),
    Watch(status::Watch),
    History(status::History),
    Export(status::Export),
    Web(web::Web),
}

impl Args {
    pub(crate) const fn is_output_its_product(&self) -> bool {
        matches!(
            self.command,
            Command::Plan(_) | Command::Status(_) | Command::Watch(_) | Command::History(_)
        )
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Hub(args) => args.run(),
            Command::Enroll(args) => args.run(),
            Command::Revoke(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Set(args) => args.run(),
            Command::RollOut(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Watch(args) => args.run(),
            Command::History(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Web(args) => args.run(),
        }
    }
}

/// The folder of the fleet, for every command.
#[derive(clap::Args)]
struct HubArg {
    /// The folder that 'sqm fleet hub init' has made.
    #[arg(long = "hub", value_name = "FOLDER", env = "SQM_FLEET", default_value = ".")]
    folder: std::path::PathBuf,
}

/// Runs the requests of a command.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(work)
}
