//! `sqm compare`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use sqm_measure::autorate_trace::{self, Figures, Recording};
use sqm_measure::compare::{Difference, differences};
use sqm_measure::foreign;
use sqm_measure::grade::Verdict;
use sqm_measure::plot::{self, Plot, Run, Sheet};
use sqm_measure::report;
use sqm_measure::result::{Meta, Summary, TestResult};
use sqm_measure::room::Room;

use crate::json;
use sqm_process::failure::Failure;
use sqm_process::output_file;

/// Compare tests: figures, grades and pictures of result files, ours or Flent's; and of autorate's logs
///
/// Reads results of `sqm test`, Flent's .flent.gz files (versions 1 to 4), logs that the daemon writes with `option
/// autorate_log`, and logs of cake-autorate, in any number and mixture. Tests with the same title count as repetitions: three of each show whether
/// a difference is more than chance.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm compare before.flent.gz after.flent.gz               a table
  sqm compare after.flent.gz before.flent.gz --base before.flent.gz    differences from a test that is not the first
  sqm compare *.flent.gz --html report.html                one page with everything in it
  sqm compare *.flent.gz --plot box_combine,ping_cdf       box_combine.svg, ping_cdf.svg
  sqm compare *.flent.gz --plot ping_cdf --svg cdf.svg     one picture, in that file
  sqm compare a.flent.gz --plot all --out pictures --png   every picture in a folder, as PNG too
  sqm compare *.flent.gz --json | jq '.runs[].summary'
  sqm compare rates.csv --plot autorate,autorate_cdf --png rate, load and delay over time, and their distribution
  sqm compare cake-autorate.primary.log rates.csv          cake-autorate before, sqm after
  sqm compare monday.csv tuesday.csv after.flent.gz --plot autorate_cdf

Exit codes: 0 done, 1 a file cannot be read or written, 2 wrong arguments.")]
pub(crate) struct Args {
    /// Result files, and logs of autorate
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The test with which the others are compared, by its title or its file [default: the first]
    #[arg(long, value_name = "TEST")]
    base: Option<String>,
    /// Pictures to draw. Without --svg and --png FILE each is a file in the folder of --out that is named after its picture
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    plot: Vec<Kind>,
    /// Folder for the pictures [default: this folder]
    #[arg(long, value_name = "DIR", requires = "plot")]
    out: Option<PathBuf>,
    /// Draw the one picture of --plot into this file
    #[arg(long, value_name = "FILE", requires = "plot", conflicts_with = "out")]
    svg: Option<PathBuf>,
    /// Draw the one picture of --plot into this file as PNG, in twice the size for sharp print. Without FILE, behind all other
    /// words: draw every picture in the folder as PNG, too
    #[arg(long, value_name = "FILE", num_args = 0..=1, requires = "plot")]
    png: Option<Option<PathBuf>>,
    /// Draw the pictures 300 pixels wide, for a phone, with their labels above the panels. Not those of autorate's logs
    #[arg(long, requires = "plot")]
    narrow: bool,
    /// Write a page with figures and all pictures, in one file that loads nothing from the network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the figures as JSON, without the samples
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    /// All pictures
    All,
    /// Download, upload and latency over time; a picture for each test
    AllScaled,
    /// Distribution of latency under load
    PingCdf,
    /// Boxes of throughput and latency, a row for each test
    BoxCombine,
    /// Sums of throughput, and latency, over time
    Totals,
    /// Each flow over time; a picture for each test
    PerFlow,
    /// Congestion window and TCP's round trip; a picture for each test
    Tcp,
    /// Rate, load and delay over time; a picture for each log of autorate
    Autorate,
    /// Distribution of delay and rate, of logs of autorate; tests' delays beside them
    AutorateCdf,
}

/// A kind of picture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Picture {
    Tests(Plot),
    EachLog,
    AllLogs,
}

impl Kind {
    /// The pictures of this kind. `All` leaves out those for which there are no files.
    fn pictures(self, has_tests: bool, has_logs: bool) -> Vec<Picture> {
        let plot = match self {
            Self::All => {
                let tests = Plot::ALL.into_iter().filter(|_| has_tests).map(Picture::Tests);
                let logs = [Picture::EachLog, Picture::AllLogs]
                    .into_iter()
                    .filter(|_| has_logs);
                return tests.chain(logs).collect();
            }
            Self::Autorate => return vec![Picture::EachLog],
            Self::AutorateCdf => return vec![Picture::AllLogs],
            Self::AllScaled => Plot::AllScaled,
            Self::PingCdf => Plot::PingCdf,
            Self::BoxCombine => Plot::BoxCombine,
            Self::Totals => Plot::Totals,
            Self::PerFlow => Plot::PerFlow,
            Self::Tcp => Plot::Tcp,
        };
        vec![Picture::Tests(plot)]
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(Some(file)) = &self.png
            && file.extension().is_none_or(|ending| ending != "png")
        {
            return Err(Failure::Usage(anyhow::anyhow!(
                "--png takes the name of a PNG file, and '{0}' is none: for every picture of --out as PNG write --png behind \
                 {0}",
                file.display()
            )));
        }
        let (logs, files): (Vec<PathBuf>, Vec<PathBuf>) = self
            .files
            .iter()
            .cloned()
            .partition(|file| autorate_trace::is_trace(file));
        let room = Room::default();
        let logs = logs
            .into_iter()
            .map(|file| Ok((Recording::load(&file, file_name(&file), &room)?, file)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let (files, results) = load(files, &room)?;
        let names: Vec<String> = files
            .iter()
            .zip(&results)
            .map(|(file, result)| name(file, result))
            .collect();
        let runs: Vec<Run<'_>> = names
            .iter()
            .zip(&results)
            .map(|(name, result)| Run { name, result })
            .collect();
        let labels = labels(&files, &names);
        let labelled: Vec<Run<'_>> = labels
            .iter()
            .zip(&results)
            .map(|(name, result)| Run { name, result })
            .collect();
        let base = self.base_name(&files, &names)?;
        let recordings: Vec<&Recording> = logs.iter().map(|(recording, _)| recording).collect();
        for (recording, file) in &logs {
            for cut in &recording.truncated_lines {
                let (file, line) = (file.display(), cut.line);
                errln!(
                    "sqm: warning: {file}: line {line} is incomplete and skipped: {}",
                    cut.reason
                );
            }
        }
        let differences = differences(&runs, base);
        self.draw(&labelled, &recordings)?;
        if let Some(file) = &self.html {
            let page = report::comparison(&labelled, &differences, &Plot::ALL, &recordings);
            output_file::write(file, page)?;
        }
        let text = if self.json {
            document(&files, &runs, &differences, &logs)?
        } else {
            let mut text = String::new();
            if !runs.is_empty() {
                text += &table(&labelled, &differences);
            }
            if !logs.is_empty() {
                text += &log_table(&recordings);
            }
            text
        };
        out!("{text}");
        Ok(ExitCode::SUCCESS)
    }

    /// The name of the group that the others are compared with.
    fn base_name<'a>(&self, files: &[PathBuf], names: &'a [String]) -> Result<Option<&'a str>, Failure> {
        let Some(base) = &self.base else {
            return Ok(None);
        };
        let is_base = |(file, name): &(&PathBuf, &String)| {
            *name == base || file.as_os_str() == base.as_str() || file_name(file) == *base
        };
        let found = files.iter().zip(names).find(is_base);
        match found {
            Some((_, name)) => Ok(Some(name)),
            None => {
                let mut known = names.to_vec();
                known.dedup();
                Err(Failure::Usage(anyhow::anyhow!(
                    "--base: no test is called '{base}'; there are: {}",
                    known.join(", ")
                )))
            }
        }
    }

    fn draw(&self, runs: &[Run<'_>], logs: &[&Recording]) -> Result<(), Failure> {
        if self.plot.is_empty() {
            return Ok(());
        }
        let kinds = self.plot.iter();
        let mut pictures: Vec<Picture> = kinds
            .flat_map(|kind| kind.pictures(!runs.is_empty(), !logs.is_empty()))
            .collect();
        pictures.dedup();
        if self.has_file() {
            self.check_one(&pictures, runs.len(), logs.len())?;
        } else {
            let folder = self.folder();
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let sheet = if self.narrow { Sheet::Narrow } else { Sheet::Wide };
        for picture in pictures {
            match picture {
                Picture::Tests(plot) if plot.is_of_one() => {
                    self.save_each(plot.name(), runs, |run| plot.draw(&[*run], sheet))?;
                }
                Picture::Tests(plot) => self.save(plot.name(), plot.draw(runs, sheet))?,
                Picture::EachLog => {
                    self.save_each("autorate", logs, |log| plot::autorate::over_time(log))?;
                }
                Picture::AllLogs => self.save("autorate_cdf", plot::autorate::distribution(logs, runs))?,
            }
        }
        Ok(())
    }

    /// True if a file is named for the one picture.
    const fn has_file(&self) -> bool {
        self.svg.is_some() || matches!(self.png, Some(Some(_)))
    }

    /// The folder for the pictures.
    fn folder(&self) -> &Path {
        self.out.as_deref().unwrap_or_else(|| Path::new("."))
    }

    /// Refuses several pictures for one file, and a folder beside it.
    fn check_one(&self, pictures: &[Picture], tests: usize, logs: usize) -> Result<(), Failure> {
        let count = |picture: &Picture| match picture {
            Picture::Tests(plot) if plot.is_of_one() => tests.max(1),
            Picture::EachLog => logs.max(1),
            Picture::Tests(_) | Picture::AllLogs => 1,
        };
        match pictures.iter().map(count).sum::<usize>() {
            1 if self.out.is_none() => Ok(()),
            1 => Err(Failure::Usage(anyhow::anyhow!(
                "--png FILE is drawn into that file, and --out has no effect: leave one of them out"
            ))),
            several => Err(Failure::Usage(anyhow::anyhow!(
                "a file takes one picture, and these are {several}: name a folder with --out, and leave out --svg and the file \
                     of --png"
            ))),
        }
    }

    /// Saves a picture of each item. The file names have numbers only if there are several items.
    fn save_each<T>(&self, name: &str, of: &[T], draw: impl Fn(&T) -> Option<String>) -> Result<(), Failure> {
        match of {
            [] => self.save(name, None),
            [one] => self.save(name, draw(one)),
            several => (1..)
                .zip(several)
                .try_for_each(|(number, one)| self.save(&format!("{name}-{number}"), draw(one))),
        }
    }

    fn save(&self, name: &str, picture: Option<String>) -> Result<(), Failure> {
        let Some(picture) = picture else {
            let why = format!("no picture {name}: the files have no data for it");
            if self.has_file() {
                return Err(Failure::Failed(anyhow::anyhow!(why)));
            }
            errln!("sqm: warning: {why}");
            return Ok(());
        };
        let of_name = |ending: &str| self.folder().join(format!("{name}.{ending}"));
        let svg = match self.has_file() {
            true => self.svg.clone(),
            false => Some(of_name("svg")),
        };
        if let Some(path) = svg {
            output_file::write(&path, &picture)?;
        }
        if let Some(file) = &self.png {
            let bytes = crate::png::render(&picture)?;
            let path = file.clone().unwrap_or_else(|| of_name("png"));
            output_file::write(&path, bytes)?;
        }
        Ok(())
    }
}

/// Reads the results. The summary that `sqm-lab demo` writes beside its results is skipped with a warning.
fn load(files: Vec<PathBuf>, room: &Room) -> Result<(Vec<PathBuf>, Vec<TestResult>), Failure> {
    let is_only = files.len() == 1;
    let (mut kept, mut results) = (Vec::new(), Vec::new());
    for file in files {
        match TestResult::load_within(&file, room) {
            Ok(result) => {
                kept.push(file);
                results.push(result);
            }
            Err(_) if !is_only && is_demo_summary(&file) => errln!(
                "sqm: warning: {}: skipped: it is the summary of a demonstration, and the figures are those of the other files",
                file.display()
            ),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((kept, results))
}

/// True if the file has the form of `summary.json` of `sqm-lab demo`.
fn is_demo_summary(file: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct Line {
        before: serde_json::Map<String, serde_json::Value>,
        after: serde_json::Map<String, serde_json::Value>,
    }
    #[derive(serde::Deserialize)]
    struct DemoSummary {
        lines: Vec<Line>,
    }
    /// Far larger than a summary of all lines of the lab, bytes.
    const MOST: u64 = 1 << 20;
    let is_small = file
        .metadata()
        .is_ok_and(|found| found.is_file() && found.len() <= MOST);
    let text = is_small.then(|| std::fs::read(file).ok()).flatten();
    let summary = text.and_then(|text| serde_json::from_slice::<DemoSummary>(&text).ok());
    summary
        .filter(|summary| !summary.lines.is_empty())
        .is_some_and(|summary| {
            let mut sides = summary.lines.iter().flat_map(|line| [&line.before, &line.after]);
            sides.all(|side| side.contains_key("latency_median_ms"))
        })
}

/// A name for each row: tests with equal names are told apart by their files.
fn labels(files: &[PathBuf], names: &[String]) -> Vec<String> {
    let label = |file: &PathBuf, name: &String| {
        let others = || {
            let all = files.iter().zip(names);
            all.filter(|(other, same)| *same == name && *other != file)
        };
        if others().next().is_none() {
            name.clone()
        } else if others().all(|(other, _)| file_name(other) != file_name(file)) {
            file_name(file)
        } else {
            foreign::printable(&file.to_string_lossy()).into_owned()
        }
    };
    files
        .iter()
        .zip(names)
        .map(|(file, name)| label(file, name))
        .collect()
}

/// The title of the test, or the name of its file if it has none.
fn name(file: &Path, result: &TestResult) -> String {
    result.meta.title.clone().unwrap_or_else(|| file_name(file))
}

fn file_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name
        .trim_end_matches(".gz")
        .trim_end_matches(".flent")
        .trim_end_matches(".json");
    foreign::printable(name).into_owned()
}

#[derive(Serialize)]
struct Output<'a> {
    runs: Vec<OneRun<'a>>,
    differences: &'a [Difference],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logs: Vec<OneLog<'a>>,
}

#[derive(Serialize)]
struct OneLog<'a> {
    file: &'a Path,
    name: &'a str,
    #[serde(flatten)]
    figures: Figures,
    /// Numbers of incomplete lines.
    cut_lines: Vec<usize>,
}

#[derive(Serialize)]
struct OneRun<'a> {
    file: &'a Path,
    name: &'a str,
    meta: &'a Meta,
    summary: &'a Summary,
    #[serde(flatten)]
    verdict: Verdict,
}

fn document(
    files: &[PathBuf],
    runs: &[Run<'_>],
    differences: &[Difference],
    logs: &[(Recording, PathBuf)],
) -> anyhow::Result<String> {
    let logs = logs
        .iter()
        .map(|(recording, file)| OneLog {
            file,
            name: &recording.name,
            figures: recording.figures(),
            cut_lines: recording.truncated_lines.iter().map(|cut| cut.line).collect(),
        })
        .collect();
    let runs = files
        .iter()
        .zip(runs)
        .map(|(file, run)| OneRun {
            file,
            name: run.name,
            meta: &run.result.meta,
            summary: &run.result.summary,
            verdict: Verdict::of(run.result),
        })
        .collect();
    let output = Output {
        runs,
        differences,
        logs,
    };
    Ok(json::pretty(&json::object(&output))? + "\n")
}

/// A table with two rows for each log, one for each direction. The delay is in the first one.
fn log_table(logs: &[&Recording]) -> String {
    let width = logs.iter().map(|log| log.name.chars().count()).max();
    let width = width.unwrap_or(0).clamp(4, 40);
    let mut text = format!(
        "{:<width$} {:>9} {:<8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>8} {:>8} {:>6}\n",
        "",
        "time",
        "",
        "rate",
        "lowest",
        "5 %",
        "median",
        "95 %",
        "load",
        "cuts",
        "add med",
        "95 %",
        "99 %",
        "lost"
    );
    for log in logs {
        let figures = log.figures();
        let name: String = log.name.chars().take(width).collect();
        let ms = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let delay = &figures.delay;
        let mut first = (name, format!("{:.0} s", figures.seconds));
        let mut delays = format!(
            " {:>8} {:>8} {:>8} {:>6}",
            ms(delay.added_median_ms),
            ms(delay.added_p95_ms),
            ms(delay.added_p99_ms),
            delay.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string())
        );
        for (way, side) in [("download", &figures.download), ("upload", &figures.upload)] {
            let Some(side) = side else { continue };
            let (name, time) = std::mem::take(&mut first);
            writeln!(
                text,
                "{name:<width$} {time:>9} {way:<8} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>6}{}",
                side.rate_mean_mbit,
                side.rate_min_mbit,
                side.rate_p5_mbit,
                side.rate_median_mbit,
                side.rate_p95_mbit,
                side.load_mean_mbit,
                side.cuts,
                std::mem::take(&mut delays)
            )
            .expect("a string grows");
        }
    }
    text + "logs of autorate: mean rate, percentiles of the rate over time, and mean load in Mbit/s; cuts: rate \
        reductions because of a queue; add: round trips of probes above the smallest of the same reflector, ms\n"
}

fn table(runs: &[Run<'_>], differences: &[Difference]) -> String {
    let width = runs
        .iter()
        .map(|run| run.name.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(4, 40);
    let mut text = format!(
        "{:<width$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12} {:>6} {:>6}\n",
        "",
        "idle ms",
        "median",
        "95 %",
        "99 %",
        "add down",
        "add up",
        "down Mbit/s",
        "up Mbit/s",
        "lost",
        "grade"
    );
    let mut notes = String::new();
    for run in runs {
        let s = &run.result.summary;
        let ms = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let rate = |mbit: Option<f64>| mbit.map_or_else(|| "-".to_owned(), |mbit| format!("{mbit:.2}"));
        let added = |direction: &Option<sqm_measure::result::DirectionFigures>| {
            ms(direction.as_ref().and_then(|figures| figures.added_median_ms))
        };
        let verdict = Verdict::of(run.result);
        let name: String = run.name.chars().take(width).collect();
        writeln!(
            text,
            "{name:<width$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12} {:>6} {:>6}",
            ms(s.idle_ms),
            ms(s.latency_median_ms),
            ms(s.latency_p95_ms),
            ms(s.latency_p99_ms),
            added(&s.down),
            added(&s.up),
            rate(s.download_mbit),
            rate(s.upload_mbit),
            s.probes_lost,
            verdict
                .grade
                .as_ref()
                .map_or("none", |grade| grade.letter.as_str())
        )
        .expect("a string grows");
        if let Some(grade) = &verdict.grade {
            writeln!(notes, "{name}: {}", grade.sentence).expect("a string grows");
        }
        for note in verdict.notes() {
            writeln!(notes, "{name}: {note}").expect("a string grows");
        }
    }
    text.push_str(
        "latency in ms; add: latency that load adds to the median, by direction; grade: of the worst load's added round trip, its \
         tail and lost probes\n",
    );
    text.push_str(&notes);
    for difference in differences {
        writeln!(text, "{difference}").expect("a string grows");
    }
    text
}
