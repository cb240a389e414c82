//! Comparisons and pictures of test results. A child process reads the results, because they contain all samples of a test: its memory
//! is free again when it ends.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answers;
use super::problem::{ApiResult, Problem};
use super::query::Query;
use super::test_jobs::{Scratch, Verdict, is_id};
use crate::app_state::AppState;
use sqm_http::json;
use sqm_process::child::{self, Ended};

/// The largest number of results in a comparison. Our choice.
const MOST_RESULTS: usize = 8;
/// The time limit of a child process: a slow router draws a picture of eight tests in less.
const PATIENCE: Duration = Duration::from_secs(60);
/// The kinds of pictures; true if a picture shows only one test.
const PLOTS: [(&str, bool); 6] = [
    ("all_scaled", true),
    ("ping_cdf", false),
    ("box_combine", false),
    ("totals", false),
    ("per_flow", true),
    ("tcp", true),
];

/// The width of a picture: for a large screen, or for a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sheet {
    Wide,
    Narrow,
}

impl Sheet {
    /// The parameter `sheet` of a request.
    pub(super) fn of(query: &Query<'_>) -> Result<Self, Problem> {
        match query.text("sheet") {
            None | Some("wide") => Ok(Self::Wide),
            Some("narrow") => Ok(Self::Narrow),
            Some(_) => Err(Problem::bad_request("sheet is wide or narrow")),
        }
    }
}

/// A test in the output of `sqm compare --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) summary: Value,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

/// The output of `sqm compare --json`; with other runs, the answer to `GET /compare`.
#[derive(Debug, Serialize, Deserialize)]
struct Comparison<R> {
    runs: Vec<R>,
    differences: Vec<Value>,
}

#[derive(Serialize)]
struct NamedRun<'a> {
    id: &'a str,
    name: String,
    summary: Value,
    verdict: Verdict,
}

/// The figures of a result, and the names of its pictures that are not empty.
pub(super) async fn judge(state: &AppState, file: &Path) -> Result<(Run, Vec<String>), Problem> {
    let folder = scratch(state)?;
    let ended = child_compare("all", Sheet::Wide, &folder.path, &[file.to_owned()]).await?;
    let mut comparison = understand(&ended)?;
    let drawn = |name: &str| {
        // The name of a picture of one test has no number.
        folder.path.join(format!("{name}.svg")).exists()
    };
    let plots = PLOTS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| drawn(name))
        .collect();
    let run = comparison
        .runs
        .pop()
        .ok_or_else(|| Problem::unavailable("the result holds no test"))?;
    Ok((run, plots))
}

/// Judges the results again that were graded by the rule of an older version, so that all grades follow one rule.
pub(super) async fn judge_again(state: Arc<AppState>) {
    for id in state.test_jobs.take_to_judge() {
        let Ok(file) = state.test_jobs.result(&id) else {
            continue;
        };
        if let Ok(mut comparison) = compare(&[file]).await
            && let Some(run) = comparison.runs.pop()
        {
            state.test_jobs.change_verdict(&id, run.summary, run.verdict);
        }
    }
}

pub(super) async fn tell(state: &AppState, query: &Query<'_>) -> ApiResult {
    let ids = ids(query)?;
    let files = files(state, &ids)?;
    let Comparison { runs, differences } = compare(&files).await?;
    let runs = ids
        .iter()
        .zip(runs)
        .map(|(id, run)| NamedRun {
            id,
            name: state.test_jobs.name(id),
            summary: run.summary,
            verdict: run.verdict,
        })
        .collect();
    Ok(json(StatusCode::OK, &Comparison { runs, differences }))
}

pub(super) async fn plot_one(state: &AppState, id: &str, plot: &str, query: &Query<'_>) -> ApiResult {
    let known = PLOTS.iter().find(|(name, _)| *name == plot);
    let (name, _) = known.ok_or_else(answers::no_picture)?;
    draw(state, name, Sheet::of(query)?, &files(state, &[id])?).await
}

pub(super) async fn plot(state: &AppState, plot: &str, query: &Query<'_>) -> ApiResult {
    let ids = ids(query)?;
    let known = PLOTS.iter().find(|(name, is_of_one)| *name == plot && !is_of_one);
    let (name, _) = known.ok_or_else(answers::no_picture)?;
    draw(state, name, Sheet::of(query)?, &files(state, &ids)?).await
}

async fn compare(files: &[PathBuf]) -> Result<Comparison<Run>, Problem> {
    let mut arguments: Vec<OsString> = ["compare", "--json", "--"].map(Into::into).to_vec();
    arguments.extend(files.iter().map(|file| file.clone().into()));
    let ended = child::run(child::command(&arguments), PATIENCE).await;
    understand(&ended.map_err(|error| Problem::unavailable(format!("{error:#}")))?)
}

fn understand(ended: &Ended) -> Result<Comparison<Run>, Problem> {
    serde_json::from_slice(&ended.output)
        .map_err(|_| Problem::unavailable(format!("the results cannot be read: {}", ended.reason())))
}

async fn child_compare(plot: &str, sheet: Sheet, folder: &Path, files: &[PathBuf]) -> Result<Ended, Problem> {
    let mut arguments: Vec<OsString> = ["compare", "--json", "--plot", plot, "--out"]
        .map(Into::into)
        .to_vec();
    arguments.push(folder.into());
    arguments.extend((sheet == Sheet::Narrow).then(|| "--narrow".into()));
    arguments.push("--".into());
    arguments.extend(files.iter().map(|file| file.clone().into()));
    let ended = child::run(child::command(&arguments), PATIENCE).await;
    ended.map_err(|error| silent(&error))
}

async fn draw(state: &AppState, plot: &str, sheet: Sheet, files: &[PathBuf]) -> ApiResult {
    let folder = scratch(state)?;
    let ended = child_compare(plot, sheet, &folder.path, files).await?;
    let drawn = fs::read_dir(&folder.path)
        .map_err(|error| silent(&error))?
        .flatten()
        .next();
    match drawn {
        Some(file) => Ok(answers::svg(
            fs::read(file.path()).map_err(|error| silent(&error))?,
        )),
        None if ended.status.success() => {
            Err(Problem::not_found("these tests have no data for this picture"))
        }
        None => Err(silent(&ended.reason())),
    }
}

fn scratch(state: &AppState) -> Result<Scratch, Problem> {
    state.test_jobs.scratch().map_err(|error| silent(&error))
}

fn silent(error: &dyn std::fmt::Display) -> Problem {
    Problem::unavailable(format!("the picture cannot be drawn: {error}"))
}

fn ids<'q>(query: &Query<'q>) -> Result<Vec<&'q str>, Problem> {
    let ids = query.text("ids").unwrap_or_default();
    // Commas may be percent-encoded.
    let ids: Vec<&str> = ids.split(',').flat_map(|id| id.split("%2C")).collect();
    if (1..=MOST_RESULTS).contains(&ids.len()) && ids.iter().all(|id| is_id(id)) {
        return Ok(ids);
    }
    Err(Problem::bad_request(
        "ids must be one to eight ids of tests, separated by commas",
    ))
}

fn files(state: &AppState, ids: &[&str]) -> Result<Vec<PathBuf>, Problem> {
    ids.iter().map(|id| state.test_jobs.result(id)).collect()
}
