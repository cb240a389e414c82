//! The whole search, in order: overhead, each direction alone, all directions together; then the new rates are written or the previous
//! shaping is restored.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};
use sqm_configuration::load;
use sqm_configuration::rate_override::RateOverride;
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_measure::result::{Settings, TestResult};
use sqm_process::Failure;

use crate::framing::{LoadedRates, rate};
use crate::joint_verification::{JointVerification, Rates};
use crate::limit;
use crate::load::Load;
use crate::log::{Log, SearchError};
use crate::overhead;
use crate::report::Report;
use crate::search_direction::{self, DirectionResult, SearchParams};
use crate::server::Server;
use crate::shaper::{Shaper, SharedShaper};

/// Simultaneous TCP flows in each direction, as in Flent's RRUL test.
const FLOWS: u32 = 4;

/// The measurements of a search with their names, such as `before-down`.
pub type Results = [(String, TestResult)];

/// The options of a search.
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// The interface; `None` if the configuration has only one.
    pub interface: Option<String>,
    /// The folder with the record of what `stop` must restore, and its lock.
    pub state_dir: PathBuf,
    /// The target: added latency, 95th percentile, milliseconds.
    pub target_ms: f64,
    /// Skips the measurement of the link layer's overhead, which takes five seconds.
    pub skips_overhead: bool,
    /// Uses the measured overhead in place of the configured one, if they differ: for the search, and in the configuration.
    pub sets_overhead: bool,
    /// Writes the rates to the configuration and leaves them in force.
    pub writes: bool,
}

/// The outcome of a search that has ended by itself.
struct Tuned {
    report: Report,
    results: Vec<(String, TestResult)>,
}

/// Searches the rates of a line. `find` returns the server that loads it. `keep` may write the measurements to files; it runs when the
/// previous shaping has been restored, or while the new rates are in force. SIGINT and SIGTERM end the search.
///
/// # Errors
///
/// The previous shaping has been restored, unless the error says otherwise.
pub fn run(
    options: Options,
    find: impl FnOnce() -> Result<Server, Failure> + Send + 'static,
    keep: impl FnOnce(&Report, &Results) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    if options.writes {
        load::refuse_staged(&options.config)?;
    }
    let shaper = Shaper::open(&options.config, options.interface.as_deref(), &options.state_dir)?;
    let shared = SharedShaper::new(shaper);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot listen for signals")?;
    }
    let writes = options.writes;
    let (shaper, its_stop) = (shared.clone(), Arc::clone(&stop));
    let tuned = limit::run(&stop, move || search(&options, find, &shaper, &its_stop));
    // An abandoned search cannot change anything after this.
    let mut shaper = shared.take_back().ok_or_else(|| {
        Failure::Failed(anyhow!(
            "the kernel does not answer; the previous shaping will be restored when it does"
        ))
    })?;
    let keeps_rates = writes && tuned.as_ref().is_ok_and(|tuned| tuned.report.has_rates());
    if !keeps_rates {
        shaper.undo()?;
    }
    let Tuned { mut report, results } = tuned?;
    keep(&report, &results)?;
    if keeps_rates {
        let found = |direction, kbit| report.found(direction).map(|_| Rate::from_kbits_per_sec(kbit));
        shaper.write(RateOverride {
            download: found(Direction::Download, report.download_kbit),
            upload: found(Direction::Upload, report.upload_kbit),
        })?;
        report.is_written = true;
    }
    Ok(report)
}

fn search(
    options: &Options,
    find: impl FnOnce() -> Result<Server, Failure>,
    shaper: &SharedShaper,
    stop: &AtomicBool,
) -> Result<Tuned, Failure> {
    let mut log = Log::new();
    let server = &find()?;
    let directions = server.directions();
    let flows = |direction| if directions.contains(&direction) { FLOWS } else { 0 };
    let mut settings = Settings {
        down: flows(Direction::Download),
        up: flows(Direction::Upload),
        ..Settings::default()
    };
    if !has_cubic() {
        settings.congestion = None;
    }
    let (mut found, mut loads) = (Vec::new(), Vec::new());
    let mut not_told = server.not_told();
    for missing in &not_told {
        log.step(None, format!("this server cannot measure everything: {missing}"));
    }
    shaper.with(|shaper| shaper.lift(&directions))?;
    let framing = || shaper.with(|shaper| Ok::<_, Failure>(shaper.framing()));
    let mut overhead = match server {
        Server::Own(target) if !options.skips_overhead => overhead::check(target, framing()?, stop, &mut log),
        _ => None,
    };
    if let Some(overhead) = &mut overhead {
        if let Some(bytes) = overhead.better().filter(|_| options.sets_overhead) {
            overhead.options = shaper.with(|shaper| shaper.options_for_overhead(bytes))?;
            log.step(None, format!("overhead {bytes} is counted from here on"));
        }
        shaper.with(|shaper| shaper.set_options(&overhead.options))?;
    }
    let framing = framing()?;
    let (interface, configured) = shaper.with(|shaper| {
        let configured = |direction| shaper.configured(direction);
        let configured = [configured(Direction::Download), configured(Direction::Upload)];
        Ok::<_, Failure>((shaper.interface().to_owned(), configured))
    })?;
    let set = |direction, mbit| shaper.with(|shaper| shaper.set(direction, mbit));
    for direction in directions.iter().copied() {
        let plan = SearchParams {
            server,
            direction,
            interface: &interface,
            allowed_ms: options.target_ms,
            framing,
            settings: settings.clone(),
            stop,
        };
        let (one, load) = plan
            .run(&mut |rate| set(direction, rate), &mut log)
            .map_err(for_user)?;
        set(direction, one.rate_mbit)?;
        found.push(one);
        loads.push((direction, load));
    }
    let result_of = |direction| {
        found
            .iter()
            .find(|found: &&DirectionResult| found.direction == direction)
    };
    let shaped = |direction| {
        let found = result_of(direction)?;
        Some(rate(found.rate_mbit.unwrap_or(found.carried_mbit)))
    };
    let loaded = LoadedRates {
        down: shaped(Direction::Download),
        up: shaped(Direction::Upload),
    };
    let floor_ms = framing.floor_ms(loaded);
    if let (Some(down), None, Some(up)) = (loaded.down, loaded.up, configured[1])
        && let Some(narrow) = framing.too_narrow_for_acknowledgements(down, up)
    {
        log.step(Some(Direction::Upload), narrow.clone());
        not_told.push(narrow);
    }
    let idle_ms = found.iter().map(|found| found.idle_ms).sum::<f64>() / found.len() as f64;
    let carried = Rates::carried(result_of(Direction::Download), result_of(Direction::Upload));
    let rates = Rates::together(
        result_of(Direction::Download),
        result_of(Direction::Upload),
        framing.packet_mbit(),
    );
    if let (Some(alone), Some(down)) = (
        result_of(Direction::Download).and_then(|found| found.rate_mbit),
        rates.down,
    ) && down < alone
    {
        log.step(
            Some(Direction::Download),
            format!(
                "starting at {down:.2} Mbit/s beside this upload: acknowledgements that wait for its packets release bursts"
            ),
        );
    }
    let kept_kbit = |(direction, configured): (Direction, Option<Rate>)| match result_of(direction) {
        Some(_) => 0,
        None => configured.map_or(0, |rate| rate.bits_per_sec() / 1000),
    };
    let kept_kbit = [
        (Direction::Download, configured[0]),
        (Direction::Upload, configured[1]),
    ]
    .map(kept_kbit);
    let mut report = Report {
        interface: interface.clone(),
        target_ms: options.target_ms,
        server: server.kind(),
        not_told,
        floor_ms,
        overhead,
        found,
        verified: None,
        download_kbit: kept_kbit[0],
        upload_kbit: kept_kbit[1],
        is_written: false,
        warning: None,
        steps: Vec::new(),
    };
    let mut after = None;
    if rates.down.is_some() || rates.up.is_some() {
        let verification = JointVerification {
            server,
            interface: &interface,
            framing,
            settings: &settings,
            carried,
            floor_ms,
            idle_ms,
            probe_interval_ms: framing.probe_interval_ms(loaded),
            allowed_ms: options.target_ms,
            stop,
        };
        let mut shape = |rates: Rates| {
            let mut searched = directions.iter();
            searched.try_for_each(|direction| set(*direction, rates.of(*direction)))
        };
        let outcome = verification.run(rates, &mut shape, &mut log).map_err(for_user)?;
        for found in &report.found {
            let mbit = outcome.rates.of(found.direction).unwrap_or_default();
            let kbit = (mbit * 1000.0).floor() as u64;
            match found.direction {
                Direction::Download => report.download_kbit = kbit,
                Direction::Upload => report.upload_kbit = kbit,
            }
        }
        report.verified = Some(outcome.verified);
        report.warning = outcome.warning;
        after = Some(outcome.result);
    }
    report.steps = log.into_steps();
    Ok(Tuned {
        report,
        results: results(loads, after),
    })
}

/// The measurements with their names: each direction without a shaper, and all directions with the found rates.
fn results(loads: Vec<(Direction, Load)>, after: Option<TestResult>) -> Vec<(String, TestResult)> {
    let unshaped = loads.into_iter().filter_map(|(direction, load)| {
        Some((
            format!("before-{}", direction.name()),
            search_direction::without_shaper(load, direction)?,
        ))
    });
    unshaped
        .chain(after.map(|after| ("after".to_owned(), after)))
        .collect()
}

fn has_cubic() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .is_ok_and(|list| list.split_whitespace().any(|name| name == "cubic"))
}

fn for_user(error: SearchError) -> Failure {
    match error {
        SearchError::Measuring(error) => {
            Failure::Failed(anyhow!("{error}; the previous shaping has been restored"))
        }
        SearchError::Shaping(error) => Failure::Failed(error),
        SearchError::Interrupted => {
            Failure::Failed(anyhow!("interrupted; the previous shaping has been restored"))
        }
    }
}
