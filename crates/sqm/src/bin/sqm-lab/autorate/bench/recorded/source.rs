//! The files of recorded lines.

use std::path::Path;

use anyhow::{Context, anyhow};
use sqm_core::direction::PerDirection;
use sqm_measure::autorate_trace;
use sqm_measure::foreign::printable;
use sqm_process::failure::Failure;
use sqm_sim::autorate_bench::{LogRates, Opportunities, Recorded, Refused};

/// The longest file, bytes: an hour of packets at 200 Mbit/s takes about half of it.
const LONGEST: u64 = 1 << 30;
/// Every line of a log of autorate has this many commas at least, a line of a CSV file two.
const COMMAS_OF_LOG: usize = 9;

/// A recorded line.
pub(super) struct Source {
    /// The name of its file, without folder and extension.
    pub(super) name: String,
    pub(super) recorded: Recorded,
}

/// Reads the lines in the order of the command line.
pub(super) fn read_all(arguments: &[String]) -> Result<Vec<Source>, Failure> {
    let mut sources: Vec<Source> = Vec::new();
    for argument in arguments {
        let source = read(argument)?;
        if sources.iter().any(|other| other.name == source.name) {
            let error = anyhow!(
                "two lines are called '{}': copy one file to another name",
                source.name
            );
            return Err(Failure::Usage(error));
        }
        sources.push(source);
    }
    Ok(sources)
}

fn read(argument: &str) -> anyhow::Result<Source> {
    let pair = argument.split_once(',').filter(|_| !Path::new(argument).exists());
    let (path, recorded) = match pair {
        Some((download, upload)) => {
            let files = PerDirection {
                download: opportunities(download)?,
                upload: opportunities(upload)?,
            };
            (
                download,
                Recorded::from_mahimahi(&files).map_err(|refused| in_file(argument, &refused)),
            )
        }
        None => (argument, one_file(argument)),
    };
    let stem = Path::new(path).file_stem().unwrap_or_default();
    Ok(Source {
        name: printable(&stem.to_string_lossy()).into_owned(),
        recorded: recorded?,
    })
}

fn one_file(name: &str) -> anyhow::Result<Recorded> {
    let path = Path::new(name);
    let bytes = sqm_files::read(path, LONGEST)?;
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if autorate_trace::is_trace(path) && !is_csv(first) {
        return log(path);
    }
    if str::from_utf8(first).is_ok_and(|first| first.trim().parse::<u64>().is_ok()) {
        return Err(anyhow!(
            "{name}: a packet-delivery file is for one direction: give two of them with a comma between, DOWN,UP"
        ));
    }
    Recorded::from_csv(&text(name, bytes)?).map_err(|refused| in_file(name, &refused))
}

/// True if a file that begins with this line is no log of autorate.
fn is_csv(first: &[u8]) -> bool {
    let commas = first.iter().filter(|byte| **byte == b',').count();
    first.first().is_some_and(u8::is_ascii_digit) && commas < COMMAS_OF_LOG
}

fn log(path: &Path) -> anyhow::Result<Recorded> {
    let mut rates = LogRates::default();
    autorate_trace::read(path, &mut |_, entry| rates.add(&entry))?;
    Recorded::from_log(rates).map_err(|refused| in_file(&path.display().to_string(), &refused))
}

fn opportunities(name: &str) -> anyhow::Result<Opportunities> {
    let bytes = sqm_files::read(Path::new(name), LONGEST)?;
    Opportunities::parse(&text(name, bytes)?).map_err(|refused| in_file(name, &refused))
}

fn text(name: &str, bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).with_context(|| format!("{name} is not text"))
}

fn in_file(name: &str, refused: &Refused) -> anyhow::Error {
    anyhow!("{name}: {refused}")
}
