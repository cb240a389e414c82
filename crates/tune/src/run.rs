//! The whole search: unshaped load, both directions one after the other, both together, and the rates in force or the shaping from
//! before back.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};
use sqm_core::units::Rate;
use sqm_measure::result::{Direction, Settings, TestResult};
use sqm_process::Failure;

use crate::framing::{Loaded, rate};
use crate::limit;
use crate::line::{self, Found, Plan as SearchPlan};
use crate::load::Load;
use crate::log::{Log, Trouble};
use crate::overhead;
use crate::report::Report;
use crate::server::Server;
use crate::shaper::{Lent, Shaper};
use crate::verify::{Rates, Verification};

/// TCP flows at once in each direction, as in Flent's RRUL.
const FLOWS: u32 = 4;

/// The measurements of a search with their names, such as `before-down`.
pub type Results = [(String, TestResult)];

/// A search.
pub struct Options {
    /// The configuration.
    pub config: PathBuf,
    /// The interface; `None` if the configuration has only one.
    pub interface: Option<String>,
    /// The folder of the state.
    pub state_dir: PathBuf,
    /// The latency that load may add, 95th percentile, milliseconds.
    pub target_ms: f64,
    /// Leaves out the measurement of the link layer's overhead, which takes five seconds.
    pub skips_overhead: bool,
    /// Writes the rates to the configuration and leaves them in force.
    pub writes: bool,
}

/// A search that has come to its end.
struct Tuned {
    report: Report,
    results: Vec<(String, TestResult)>,
}

/// Searches the rates of a line. `find` finds the server that loads it; `keep` may write the measurements to files, after the shaping
/// from before is back or while the new rates are still in force. SIGINT and SIGTERM end the search.
///
/// # Errors
///
/// The shaping from before is back, unless the error says otherwise.
pub fn run(
    options: Options,
    find: impl FnOnce() -> Result<Server, Failure> + Send + 'static,
    keep: impl FnOnce(&Report, &Results) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let shaper = Shaper::open(&options.config, options.interface.as_deref(), &options.state_dir)?;
    let lent = Lent::new(shaper);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot listen for signals")?;
    }
    let writes = options.writes;
    let (shaper, its_stop) = (lent.clone(), Arc::clone(&stop));
    let tuned = limit::run(&stop, move || search(&options, find, &shaper, &its_stop));
    // A search that goes on after its limit changes nothing from here on.
    let mut shaper = lent.take_back().ok_or_else(|| {
        Failure::Failed(anyhow!(
            "the kernel does not answer; the shaping from before comes back when it does"
        ))
    })?;
    let is_to_stay = writes && tuned.as_ref().is_ok_and(|tuned| tuned.report.has_rates());
    if !is_to_stay {
        shaper.undo()?;
    }
    let Tuned { mut report, results } = tuned?;
    keep(&report, &results)?;
    if is_to_stay {
        let found = |direction, kbit| report.found(direction).map(|_| Rate::from_kbits_per_sec(kbit));
        shaper.write((
            found(Direction::Down, report.download_kbit),
            found(Direction::Up, report.upload_kbit),
        ))?;
        report.is_written = true;
    }
    Ok(report)
}

fn search(
    options: &Options,
    find: impl FnOnce() -> Result<Server, Failure>,
    shaper: &Lent,
    stop: &AtomicBool,
) -> Result<Tuned, Failure> {
    let mut log = Log::new();
    let server = &find()?;
    let directions = server.directions();
    let flows = |direction| if directions.contains(&direction) { FLOWS } else { 0 };
    let mut settings = Settings {
        down: flows(Direction::Down),
        up: flows(Direction::Up),
        ..Settings::default()
    };
    if !has_cubic() {
        settings.congestion = None;
    }
    let (mut found, mut loads) = (Vec::new(), Vec::new());
    let mut not_told = server.not_told();
    for untold in &not_told {
        log.say(None, format!("not told by such a server: {untold}"));
    }
    shaper.with(|shaper| shaper.lift(&directions))?;
    let framing = || shaper.with(|shaper| Ok::<_, Failure>(shaper.framing()));
    let overhead = match server {
        Server::Own(target) if !options.skips_overhead => overhead::check(target, framing()?, stop, &mut log),
        _ => None,
    };
    if let Some(overhead) = &overhead {
        shaper.with(|shaper| shaper.set_options(&overhead.options))?;
    }
    let framing = framing()?;
    let (interface, configured) = shaper.with(|shaper| {
        let configured = |direction| shaper.configured(direction);
        let configured = [configured(Direction::Down), configured(Direction::Up)];
        Ok::<_, Failure>((shaper.interface().to_owned(), configured))
    })?;
    let set = |direction, mbit| shaper.with(|shaper| shaper.set(direction, mbit));
    for direction in directions.iter().copied() {
        let plan = SearchPlan {
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
    let of = |direction| found.iter().find(|found: &&Found| found.direction == direction);
    let shaped = |direction| {
        let found = of(direction)?;
        Some(rate(found.rate_mbit.unwrap_or(found.carried_mbit)))
    };
    let loaded = Loaded {
        down: shaped(Direction::Down),
        up: shaped(Direction::Up),
    };
    let floor_ms = framing.floor_ms(loaded);
    if let (Some(down), None, Some(up)) = (loaded.down, loaded.up, configured[1])
        && let Some(narrow) = framing.too_narrow_for_acknowledgements(down, up)
    {
        log.say(Some(Direction::Up), narrow.clone());
        not_told.push(narrow);
    }
    let idle_ms = found.iter().map(|found| found.idle_ms).sum::<f64>() / found.len() as f64;
    let carried = Rates::carried(of(Direction::Down), of(Direction::Up));
    let rates = Rates::together(of(Direction::Down), of(Direction::Up), framing.packet_mbit());
    if let (Some(alone), Some(down)) = (of(Direction::Down).and_then(|found| found.rate_mbit), rates.down)
        && down < alone
    {
        log.say(
            Some(Direction::Down),
            format!(
                "{down:.2} Mbit/s to begin with beside this upload: acknowledgements that wait for its packets let loose bursts"
            ),
        );
    }
    let kept = |(direction, configured): (Direction, Option<Rate>)| match of(direction) {
        Some(_) => 0,
        None => configured.map_or(0, |rate| rate.bits_per_sec() / 1000),
    };
    let kept = [(Direction::Down, configured[0]), (Direction::Up, configured[1])].map(kept);
    let mut report = Report {
        interface: interface.clone(),
        target_ms: options.target_ms,
        server: server.kind(),
        not_told,
        floor_ms,
        overhead,
        found,
        verified: None,
        download_kbit: kept[0],
        upload_kbit: kept[1],
        is_written: false,
        warning: None,
        steps: Vec::new(),
    };
    let mut after = None;
    if rates.down.is_some() || rates.up.is_some() {
        let verification = Verification {
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
        let proof = verification.run(rates, &mut shape, &mut log).map_err(for_user)?;
        for found in &report.found {
            let mbit = proof.rates.of(found.direction).unwrap_or_default();
            let kbit = (mbit * 1000.0).floor() as u64;
            match found.direction {
                Direction::Down => report.download_kbit = kbit,
                Direction::Up => report.upload_kbit = kbit,
            }
        }
        report.verified = Some(proof.verified);
        report.warning = proof.warning;
        after = Some(proof.result);
    }
    report.steps = log.into_steps();
    Ok(Tuned {
        report,
        results: results(loads, after),
    })
}

/// The line without a shaper, and as it is tuned.
fn results(loads: Vec<(Direction, Load)>, after: Option<TestResult>) -> Vec<(String, TestResult)> {
    let unshaped = loads.into_iter().filter_map(|(direction, load)| {
        Some((
            format!("before-{}", direction.word()),
            line::without_shaper(load, direction)?,
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

fn for_user(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Measuring(error) => Failure::Failed(anyhow!("{error}; the shaping from before is back")),
        Trouble::Shaping(error) => Failure::Failed(error),
        Trouble::Interrupted => Failure::Failed(anyhow!("interrupted; the shaping from before is back")),
    }
}
