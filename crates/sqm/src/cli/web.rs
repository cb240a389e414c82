//! `sqm web`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use super::log_level;
use sqm_process::failure::Failure;
use sqm_web::Options;

/// The page: settings, a live picture of the line, tests and advice in a browser
///
/// Needs no privileges, and a running `sqm daemon`, which makes the changes; started by root it becomes another user. On a loopback address everybody on this machine is
/// let in; any other needs a password first. Every change is written to audit.jsonl in the folder of --dir.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm web                                      http://127.0.0.1:8080, for this machine
  ssh -L 8080:127.0.0.1:8080 router            and the same page on yours
  sqm web --set-password
  sqm web --listen 192.168.1.1:8443 --tls --name router.lan
  sqm web --socket ./api.sock --dir ./web-state

Exit codes: 0 ended by a signal, 1 failed, 2 wrong arguments, or no password for an address that others reach")]
pub(crate) struct Args {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// A name by which browsers reach it, besides localhost and addresses; may be given several times
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// HTTPS, with a certificate of its own making that is kept
    #[arg(long)]
    tls: bool,
    /// The socket of `sqm daemon`
    #[arg(long, value_name = "PATH", default_value = "/run/sqm/api.sock")]
    socket: PathBuf,
    /// Where password, log of changes, certificate and results of tests are kept
    #[arg(long, value_name = "DIR", default_value = sqm_web::DIR)]
    dir: PathBuf,
    /// Ask for a password (or read one line from standard input), keep it, and end
    #[arg(long, conflicts_with_all = ["listen", "name", "tls", "socket", "results", "user"])]
    set_password: bool,
    /// Where results of tests are kept instead, such as a folder in memory; it outlives the server, not the machine's restart
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// The user to become when root starts it; else sqm-web, else one without a name
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The process that connects to the daemon
    #[arg(long, hide = true)]
    connector: bool,
    #[command(flatten)]
    log: log_level::LogArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.set_password {
            return sqm_web::set_password(&self.dir);
        }
        self.log.start();
        if self.connector {
            return sqm_web::connector::serve(&self.socket);
        }
        sqm_web::run(Options {
            listen: self.listen,
            names: self.name,
            socket: self.socket,
            dir: self.dir,
            results: self.results,
            user: self.user,
            tls: self.tls,
        })
    }
}
