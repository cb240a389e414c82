//! `sqm compare`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use sqm_measure::compare::{Difference, differences};
use sqm_measure::grade::Verdict;
use sqm_measure::plot::{Plot, Run};
use sqm_measure::report;
use sqm_measure::result::{Meta, Summary, TestResult};

use crate::failure::Failure;

/// Compare tests: figures, grades and pictures of result files, ours or Flent's
///
/// Takes what `sqm test` wrote and Flent's .flent.gz files (versions 1 to 4), in any number and mixture. Tests with the
/// same title count as repetitions: three of each show whether a difference is more than chance.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm compare before.flent.gz after.flent.gz               a table
  sqm compare *.flent.gz --html report.html                one page with everything in it
  sqm compare *.flent.gz --plot box_combine,ping_cdf       box_combine.svg, ping_cdf.svg
  sqm compare a.flent.gz --plot all --png --out pictures   every picture, as PNG too
  sqm compare *.flent.gz --json | jq '.runs[].summary'

Exit codes: 0 done, 1 a file cannot be read or written, 2 wrong arguments.")]
pub(crate) struct Args {
    /// Result files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Pictures to draw, into files named after them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    plot: Vec<Kind>,
    /// Folder for the pictures
    #[arg(long, default_value = ".", value_name = "FOLDER", requires = "plot")]
    out: PathBuf,
    /// Pictures as PNG too, in twice the size for sharp print
    #[arg(long, requires = "plot")]
    png: bool,
    /// A page with figures and all pictures, in one file that loads nothing
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Figures as JSON on standard output, without the samples
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    /// Every one of these
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
}

impl Kind {
    fn plots(self) -> Vec<Plot> {
        let one = match self {
            Self::All => return Plot::ALL.to_vec(),
            Self::AllScaled => Plot::AllScaled,
            Self::PingCdf => Plot::PingCdf,
            Self::BoxCombine => Plot::BoxCombine,
            Self::Totals => Plot::Totals,
            Self::PerFlow => Plot::PerFlow,
            Self::Tcp => Plot::Tcp,
        };
        vec![one]
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let results = self
            .files
            .iter()
            .map(|file| TestResult::load(file))
            .collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = self
            .files
            .iter()
            .zip(&results)
            .map(|(file, result)| name(file, result))
            .collect();
        let runs: Vec<Run<'_>> = names
            .iter()
            .zip(&results)
            .map(|(name, result)| Run { name, result })
            .collect();
        let differences = differences(&runs);
        self.draw(&runs)?;
        if let Some(file) = &self.html {
            let page = report::comparison(&runs, &differences, &Plot::ALL);
            std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let text = if self.json {
            json(&self.files, &runs, &differences)?
        } else {
            table(&runs, &differences)
        };
        std::io::stdout()
            .write_all(text.as_bytes())
            .context("cannot write to standard output")?;
        Ok(ExitCode::SUCCESS)
    }

    fn draw(&self, runs: &[Run<'_>]) -> Result<(), Failure> {
        if self.plot.is_empty() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the folder {}", self.out.display()))?;
        let mut plots: Vec<Plot> = self.plot.iter().flat_map(|kind| kind.plots()).collect();
        plots.dedup();
        for plot in plots {
            if plot.is_of_one() && runs.len() > 1 {
                for (index, run) in runs.iter().enumerate() {
                    self.save(&format!("{}-{}", plot.name(), index + 1), plot.draw(&[*run]))?;
                }
            } else {
                self.save(plot.name(), plot.draw(runs))?;
            }
        }
        Ok(())
    }

    fn save(&self, name: &str, picture: Option<String>) -> Result<(), Failure> {
        let Some(picture) = picture else {
            eprintln!("sqm: warning: no {name}: the files hold nothing that it shows");
            return Ok(());
        };
        let path = self.out.join(format!("{name}.svg"));
        std::fs::write(&path, &picture).with_context(|| format!("cannot write {}", path.display()))?;
        if self.png {
            let path = path.with_extension("png");
            let bytes = crate::png::render(&picture)?;
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// The title that the test was given, or the name of its file.
fn name(file: &Path, result: &TestResult) -> String {
    result.meta.title.clone().unwrap_or_else(|| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.trim_end_matches(".gz")
            .trim_end_matches(".flent")
            .trim_end_matches(".json")
            .to_owned()
    })
}

#[derive(Serialize)]
struct Output<'a> {
    runs: Vec<OneRun<'a>>,
    differences: &'a [Difference],
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

fn json(files: &[PathBuf], runs: &[Run<'_>], differences: &[Difference]) -> anyhow::Result<String> {
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
    Ok(serde_json::to_string_pretty(&Output { runs, differences })? + "\n")
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
        let added = |direction: &Option<sqm_measure::result::DirectionFigures>| {
            ms(direction.as_ref().and_then(|figures| figures.added_median_ms))
        };
        let verdict = Verdict::of(run.result);
        let name: String = run.name.chars().take(width).collect();
        writeln!(
            text,
            "{name:<width$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12.2} {:>12.2} {:>6} {:>6}",
            ms(s.idle_ms),
            ms(s.latency_median_ms),
            ms(s.latency_p95_ms),
            ms(s.latency_p99_ms),
            added(&s.down),
            added(&s.up),
            s.download_mbit,
            s.upload_mbit,
            s.probes_lost,
            verdict
                .grade
                .as_ref()
                .map_or("none", |grade| grade.letter.as_str())
        )
        .expect("a string grows");
        for finding in &verdict.findings {
            let kind = format!("{:?}", finding.severity).to_lowercase();
            writeln!(notes, "{name}: {kind}: {}", finding.text).expect("a string grows");
        }
    }
    text.push_str(
        "latency in ms; add: what load adds to the median, by direction; grade: DSLReports' letters\n",
    );
    text.push_str(&notes);
    for difference in differences {
        writeln!(text, "{difference}").expect("a string grows");
    }
    text
}
