//! `sqm fleet web`: the page of a fleet, on the operator's machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde::Serialize;
use sqm_fleet::Name;
use sqm_fleet::nats::Nats;
use sqm_process::Failure;
use sqm_web::hub::{Answer, Question, Questions};
use sqm_web::{Options, Server};

use super::folder::{Fleet, Folder};
use super::overview::{self, Overview};
use super::{HubArg, block_on, history, when};
use crate::cli::log_level;

/// A reading that is at most this old serves another browser. A choice: a page asks every three seconds.
const FRESH: Duration = Duration::from_secs(2);
/// The longest wait for the hub. A choice: longer than an election among three servers, and shorter than a page waits for its answer.
const PATIENCE: Duration = Duration::from_secs(12);

/// Serve a page with the fleet's routers, roll-outs and history, for browsers.
///
/// The page changes nothing: configurations are signed, and the key that signs them need not be on this machine. It has the rules of
/// 'sqm web': on a loopback address every user of this machine has access; any other address needs a password.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet web --hub berlin                       http://127.0.0.1:8081, for this machine
  sqm fleet web --hub berlin --set-password
  sqm fleet web --hub berlin --listen 192.168.1.5:8443 --tls --name hub.example.net

Exit codes: 0 ended by a signal, 1 failed, 2 wrong arguments, or no password for an address that other machines reach.")]
pub(super) struct Web {
    #[command(flatten)]
    hub: HubArg,
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Names by which browsers reach the page, besides localhost and addresses.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    name: Vec<String>,
    /// Serve HTTPS, with a self-signed certificate that is made once and kept.
    #[arg(long)]
    tls: bool,
    /// Folder for the password, the log of log-ins and the certificate [default: 'web' in the fleet's folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Ask for a password (or read one line from standard input), store it, and end.
    #[arg(long, conflicts_with_all = ["listen", "name", "tls"])]
    set_password: bool,
    #[command(flatten)]
    log: log_level::LogArgs,
}

impl Web {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        // The server has another working directory.
        let hub = std::path::absolute(&self.hub.folder).map_err(|error| anyhow!("--hub: {error}"))?;
        let (folder, fleet) = Folder::open(&hub)?;
        let dir = self.dir.unwrap_or_else(|| folder.of_page());
        if self.set_password {
            return sqm_web::set_password(&dir);
        }
        self.log.start();
        let options = Options {
            listen: self.listen,
            names: self.name,
            dir,
            tls: self.tls,
        };
        sqm_web::run(
            options,
            Server::Hub(Box::new(|questions| answer(folder, fleet, questions))),
        )
    }
}

/// Answers the page's questions until the server ends.
fn answer(folder: Folder, fleet: Fleet, mut questions: Questions) {
    let mut reader = Reader {
        folder,
        fleet,
        store: None,
        last: None,
        known: Overview::default(),
        read_unix_s: None,
    };
    let served = block_on(async {
        while let Some((question, reply)) = questions.recv().await {
            let answer = match question {
                Question::Fleet => reader.fleet().await,
                Question::Router(name) => reader.history(&name, true).await,
                Question::RollOut(name) => reader.history(&name, false).await,
            };
            // Fails if the browser has gone.
            let _ = reply.send(answer);
        }
        Ok(())
    });
    if let Err(error) = served {
        errln!("sqm: {error:#}");
    }
}

struct Reader {
    folder: Folder,
    fleet: Fleet,
    store: Option<Nats>,
    /// The last answer about the whole fleet, and when the reading ended.
    last: Option<(Instant, String)>,
    /// The last overview that could be read, and when.
    known: Overview,
    read_unix_s: Option<u64>,
}

/// The answer to `GET /fleet`.
#[derive(Serialize)]
struct Seen<'a> {
    server: &'a str,
    now_unix_s: u64,
    /// When the rest was read; it is older if there is an error.
    read_unix_s: Option<u64>,
    /// Why the hub could not be read.
    error: Option<String>,
    #[serde(flatten)]
    overview: &'a Overview,
}

#[derive(Serialize)]
struct Entries {
    /// The newest first.
    entries: Vec<history::Entry>,
}

impl Reader {
    async fn fleet(&mut self) -> Answer {
        if let Some((at, answer)) = &self.last
            && at.elapsed() < FRESH
        {
            return Ok(Some(answer.clone()));
        }
        let folder = self.folder.clone();
        let read = self.within_patience(async |store| overview::read(store, &folder).await);
        let error = match read.await {
            Ok(overview) => {
                self.known = overview;
                self.read_unix_s = Some(when::now());
                None
            }
            Err(error) => Some(error),
        };
        let seen = Seen {
            server: &self.fleet.url,
            now_unix_s: when::now(),
            read_unix_s: self.read_unix_s,
            error,
            overview: &self.known,
        };
        let answer = text(&seen)?;
        self.last = Some((Instant::now(), answer.clone()));
        Ok(Some(answer))
    }

    async fn history(&mut self, name: &str, is_router: bool) -> Answer {
        let Ok(name) = name.parse::<Name>() else {
            return Ok(None);
        };
        let key = self.fleet.key().map_err(|error| format!("{error:#}"))?;
        let read = self.within_patience(async |store| match is_router {
            true => history::of_router(store, &key, &name).await,
            false => history::of_roll_out(store, &name).await,
        });
        let mut entries = read.await?;
        entries.reverse();
        Ok(Some(text(&Entries { entries })?))
    }

    /// Reads something from the hub, or says why that was not possible.
    async fn within_patience<T>(
        &mut self,
        read: impl AsyncFnOnce(&Nats) -> Result<T, Failure>,
    ) -> Result<T, String> {
        let reading = async {
            if self.store.is_none() {
                self.store = Some(self.folder.connect(&self.fleet).await?);
            }
            read(self.store.as_ref().expect("connected above")).await
        };
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(read) => read.map_err(|error| format!("{error:#}")),
            Err(_) => Err(format!(
                "{} has not answered for {} s",
                self.fleet.url,
                PATIENCE.as_secs()
            )),
        }
    }
}

fn text(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}
