//! `sqm web`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use super::log_level;
use sqm_process::failure::Failure;
use sqm_web::{Options, Router, Server};

/// Serve the page: settings, a live view of the line, tests and findings in a browser
///
/// Needs a running `sqm daemon`, which makes the changes, and no privileges: if root starts it, it changes to another
/// user. On a loopback address every user of this machine has access; any other address needs a password. Every change
/// is logged in audit.jsonl in the folder of --dir.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm web                                      http://127.0.0.1:8080, for this machine
  ssh -L 8080:127.0.0.1:8080 router            the same page on your machine
  sqm web --set-password
  sqm web --listen 192.168.1.1:8443 --tls --name router.lan
  sqm web --socket ./api.sock --dir ./web-state

Exit codes: 0 ended by a signal, 1 failed, 2 wrong arguments, or no password for an address that other machines reach")]
pub(crate) struct Args {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Names by which browsers reach the page, besides localhost and addresses
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    name: Vec<String>,
    /// Serve HTTPS, with a self-signed certificate that is made once and kept
    #[arg(long)]
    tls: bool,
    /// The socket of `sqm daemon`
    #[arg(long, value_name = "PATH", default_value = "/var/run/sqm/api.sock")]
    socket: PathBuf,
    /// Folder for the password, the log of changes, the certificate and results of tests
    #[arg(long, value_name = "DIR", default_value = sqm_web::DIR)]
    dir: PathBuf,
    /// Ask for a password (or read one line from standard input), store it, and end
    #[arg(long, conflicts_with_all = ["listen", "name", "tls", "socket", "results", "user"])]
    set_password: bool,
    /// Another folder for results of tests, such as one in memory, which survives a restart of the server but not of
    /// the machine
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// The user to change to if root starts it [default: sqm-web if there is one, otherwise an unnamed user]
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
        let options = Options {
            listen: self.listen,
            names: self.name,
            dir: self.dir,
            tls: self.tls,
        };
        let router = Router {
            socket: self.socket,
            results: self.results,
            user: self.user,
        };
        sqm_web::run(options, Server::Router(router))
    }
}
