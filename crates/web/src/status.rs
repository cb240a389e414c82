//! Whether it works: what the daemon says of each interface, and what its queues do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqm_plan::uci::Document;

use super::audit::unix_ms;
use super::live::{Direction, Meter};
use super::problem::{Handled, Problem};
use crate::app_state::AppState;
use sqm_http::json;

/// What the daemon says is asked for anew after this; that it is gone, too.
const FRESH: Duration = Duration::from_millis(900);

/// What is known of an interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) interface: String,
    pub(super) state: String,
    pub(super) up: bool,
    pub(super) carrier: bool,
    /// Its download leaves through the device.
    pub(super) faces_lan: bool,
}

/// The daemon's words, as it tells them.
#[derive(Clone, Debug, Deserialize)]
struct Told {
    program: String,
    health: String,
    configuration: Configuration,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Deserialize)]
struct Configuration {
    file: String,
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// Told on as it is, but for the queues, which we read ourselves.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Interface {
    interface: String,
    state: String,
    why: Option<String>,
    for_seconds: f64,
    applied: u64,
    repaired: u64,
    changes: Vec<String>,
    device: Option<Value>,
    #[serde(default, skip_serializing)]
    queues: Option<Owned>,
    #[serde(default)]
    autorate: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Owned {
    owner: Option<String>,
}

/// The configuration file, as the daemon tells it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct File {
    pub(super) file: String,
    pub(super) text: String,
    pub(super) revision: String,
    pub(super) unconfirmed: Option<Unconfirmed>,
}

/// A change that waits for its confirmation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Unconfirmed {
    revision: String,
    seconds_left: f64,
}

#[derive(Serialize)]
struct Answer {
    unix_ms: u64,
    daemon: DaemonState,
    interfaces: Vec<InterfaceState>,
    unconfirmed: Option<Unconfirmed>,
    running_test: Option<String>,
    tuning: bool,
}

#[derive(Default, Serialize)]
struct DaemonState {
    running: bool,
    health: String,
    error: Option<String>,
    program: Option<String>,
    file: Option<String>,
    errors: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct InterfaceState {
    #[serde(flatten)]
    told: Interface,
    owner: Option<String>,
    download: Option<Direction>,
    upload: Option<Direction>,
}

pub(super) async fn get(site: &Arc<AppState>) -> Handled {
    let told: Result<Told, Problem> = site.daemon.get("/v1/status").await;
    let told = match told {
        Ok(told) => told,
        Err(problem) => {
            let daemon = DaemonState {
                health: "absent".to_owned(),
                error: Some(problem.message().to_owned()),
                ..DaemonState::default()
            };
            return Ok(answer(site, daemon, Vec::new(), None, false));
        }
    };
    let file: Option<File> = site.daemon.get("/v1/configuration").await.ok();
    let tune: Option<Value> = site.daemon.get("/v1/tune").await.ok();
    let known = known_of(&told, file.as_ref());
    let sample = Meter::default().sample(&site.watch.read(&known));
    let interfaces = told
        .interfaces
        .into_iter()
        .map(|told| {
            let mut seen = sample.interfaces.iter();
            let seen = seen.find(|seen| seen.interface == told.interface);
            InterfaceState {
                owner: told.queues.as_ref().and_then(|queues| queues.owner.clone()),
                download: seen.and_then(|seen| seen.download.clone()),
                upload: seen.and_then(|seen| seen.upload.clone()),
                told,
            }
        })
        .collect();
    let daemon = DaemonState {
        running: true,
        health: told.health,
        error: None,
        program: Some(told.program),
        file: Some(told.configuration.file),
        errors: told.configuration.errors,
        warnings: told.configuration.warnings,
    };
    let tuning = tune.is_some_and(|tune| tune["state"] == "running");
    Ok(answer(
        site,
        daemon,
        interfaces,
        file.and_then(|file| file.unconfirmed),
        tuning,
    ))
}

fn answer(
    site: &AppState,
    daemon: DaemonState,
    interfaces: Vec<InterfaceState>,
    unconfirmed: Option<Unconfirmed>,
    tuning: bool,
) -> hyper::Response<sqm_http::ResponseBody> {
    let answer = Answer {
        unix_ms: unix_ms(),
        daemon,
        interfaces,
        unconfirmed,
        running_test: site.runs.running(),
        tuning,
    };
    json(StatusCode::OK, &answer)
}

/// What was known last, for those who ask several times a second.
#[derive(Default)]
pub(super) struct Memory(tokio::sync::Mutex<Option<(Instant, Arc<[Known]>)>>);

/// The interfaces that the daemon keeps; none if there is no daemon.
pub(super) async fn known(site: &AppState) -> Arc<[Known]> {
    // One asks for all who want to know now.
    let mut memory = site.memory.0.lock().await;
    if let Some((at, known)) = &*memory
        && at.elapsed() < FRESH
    {
        return Arc::clone(known);
    }
    let told: Option<Told> = site.daemon.get("/v1/status?queues=no").await.ok();
    let file: Option<File> = match told {
        Some(_) => site.daemon.get("/v1/configuration").await.ok(),
        None => None,
    };
    let known: Arc<[Known]> = match told {
        None => Arc::from([]),
        Some(told) => {
            let known = tokio::task::spawn_blocking(move || known_of(&told, file.as_ref()));
            known.await.unwrap_or_default().into()
        }
    };
    *memory = Some((Instant::now(), Arc::clone(&known)));
    known
}

fn known_of(told: &Told, file: Option<&File>) -> Vec<Known> {
    let document = file.and_then(|file| Document::parse(&file.text).ok());
    let sections = document.iter().flat_map(Document::sections);
    let facing_lan: BTreeSet<&str> = sections
        .filter_map(|section| {
            let last = |name: &str| {
                let mut settings = section.settings.iter().rev();
                settings
                    .find(|setting| setting.name == name)
                    .map(|setting| setting.value)
            };
            last("facing").filter(|facing| facing.eq_ignore_ascii_case("lan"))?;
            last("interface")
        })
        .collect();
    told.interfaces
        .iter()
        .map(|interface| Known {
            interface: interface.interface.clone(),
            state: interface.state.clone(),
            faces_lan: facing_lan.contains(interface.interface.as_str()),
            ..Known::default()
        })
        .collect()
}
