//! `sqm daemon`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use sqm_configuration::Draft;
use sqm_kernel::state;

use super::log_level;
use sqm_daemon::Options;
use sqm_process::failure::Failure;
use sqm_process::user;

/// Keep every enabled section in force, through reboots, reconnects, renamed devices and changes by other programs.
///
/// The daemon undoes a change by another program within a second; its status shows if that fails. Signals: HUP reads
/// the configuration again (one with errors changes nothing), TERM and INT end the daemon and restore the previous
/// queues, QUIT ends the daemon and leaves its queues in force for the next one, as a crash does.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm daemon
  sqm daemon --metrics 127.0.0.1:9469
  sqm daemon --drift report
  curl --unix-socket /var/run/sqm/api.sock http://sqm/v1/status
  curl --unix-socket /var/run/sqm/api.sock -X POST http://sqm/v1/apply

Exit codes: 0 ended by a signal, 1 failed, 2 wrong arguments, 3 needs root")]
pub(crate) struct Args {
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    config: PathBuf,
    /// How to react when another program has changed the queues of a section without `option drift`.
    #[arg(long, value_name = "WHAT", default_value = "repair")]
    drift: Drift,
    /// Serve metrics for Prometheus at this address of the machine itself (loopback).
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// The API's socket [default: api.sock in the state folder].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A user besides root who may make changes through the API [default: sqm-web, if this machine has that user].
    #[arg(long, value_name = "NAME")]
    admin_user: Option<String>,
    /// Folder for the state that `sqm stop` restores.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    log: log_level::LogArgs,
}

/// The fleet that the router belongs to.
#[cfg(feature = "fleet")]
#[derive(clap::Args)]
struct FleetArgs {
    /// Take documents of a fleet from these servers, such as tls://hub.example.net:4222; see 'sqm fleet'.
    #[arg(
        long,
        value_name = "URL",
        requires = "fleet_credentials",
        requires = "fleet_key"
    )]
    fleet_url: Option<String>,
    /// The router's credentials, which 'sqm fleet enroll' makes.
    #[arg(long, value_name = "FILE", requires = "fleet_url")]
    fleet_credentials: Option<PathBuf>,
    /// The public key that signs the fleet's documents.
    #[arg(long, value_name = "KEY", requires = "fleet_url")]
    fleet_key: Option<String>,
    /// The certificate authority of the fleet's servers, PEM [default: those of this machine].
    #[arg(long, value_name = "FILE", requires = "fleet_url")]
    fleet_ca: Option<PathBuf>,
}

#[cfg(feature = "fleet")]
impl FleetArgs {
    /// The fleet of the command line, else that of the configuration.
    fn options(self, config: &Path) -> Option<sqm_daemon::FleetOptions> {
        match (self.fleet_url, self.fleet_credentials, self.fleet_key) {
            (Some(url), Some(credentials), Some(key)) => Some(sqm_daemon::FleetOptions {
                url,
                credentials,
                key,
                certificate_authority: self.fleet_ca,
            }),
            _ => fleet_of(config),
        }
    }
}

/// The fleet that a section `config daemon` names. A missing option is an empty value, which the daemon reports.
#[cfg(feature = "fleet")]
fn fleet_of(config: &Path) -> Option<sqm_daemon::FleetOptions> {
    let option = |name: &str| daemon_option(config, name);
    Some(sqm_daemon::FleetOptions {
        url: option("fleet_url")?,
        credentials: option("fleet_credentials").unwrap_or_default().into(),
        key: option("fleet_key").unwrap_or_default(),
        certificate_authority: option("fleet_ca").map(PathBuf::from),
    })
}

/// An option of the section `config daemon`, with the changes that `uci` has staged. The daemon itself reports a file that cannot be read.
fn daemon_option(config: &Path, name: &str) -> Option<String> {
    let text = sqm_configuration::staged::text_in_force(config)?;
    let draft = Draft::of(&text).ok()?;
    let sections = draft.sections();
    let mut values = sections
        .iter()
        .filter(|section| section.kind == "daemon")
        .filter_map(|section| section.value(name));
    // The last one counts.
    values
        .next_back()
        .filter(|value| !value.is_empty())
        .map(str::to_owned)
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Drift {
    /// Restore the configured queues.
    Repair,
    /// Only report it.
    Report,
}

impl From<Drift> for sqm_daemon::Drift {
    fn from(drift: Drift) -> Self {
        match drift {
            Drift::Repair => Self::Repair,
            Drift::Report => Self::Report,
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(address) = self.metrics
            && !address.ip().is_loopback()
        {
            return Err(Failure::Usage(anyhow!(
                "metrics are served on loopback addresses only (127.0.0.1 or [::1]), and {} is none; to serve \
                 them to other machines, put a web server with a password in front",
                address.ip()
            )));
        }
        self.log.start();
        #[cfg(not(feature = "fleet"))]
        if daemon_option(&self.config, "fleet_url").is_some() {
            tracing::warn!(
                "option fleet_url has no effect: this build of sqm has no fleet; the package of the whole program has"
            );
        }
        #[cfg(feature = "fleet")]
        let fleet = self.fleet.options(&self.config);
        sqm_daemon::run(Options {
            config: self.config,
            state_dir: self.state_dir,
            socket: self.socket,
            metrics: self.metrics,
            drift: self.drift.into(),
            admin: admin(self.admin_user.as_deref())?,
            #[cfg(feature = "fleet")]
            fleet,
        })
    }
}

/// The id of the user that may make changes. The default is the user of the web server, which need not exist.
fn admin(name: Option<&str>) -> Result<Option<u32>, Failure> {
    let found = user::find(name.unwrap_or(user::PAGE))?;
    match (name, found) {
        (Some(name), None) => Err(Failure::Usage(anyhow!(
            "--admin-user: there is no user {name} on this machine"
        ))),
        (_, found) => Ok(found.map(|user| user.uid)),
    }
}
