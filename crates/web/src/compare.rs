//! Results side by side, and pictures of them. A child reads them: a result holds all samples of its test, and their memory
//! goes with the child.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json as value};

use super::problem::{Handled, Problem};
use super::query::Query;
use super::runs::{Scratch, is_id};
use crate::app_state::AppState;
use sqm_http::{ResponseBody, full, json};
use sqm_process::child::{self, Ended};

/// More results at once are not compared.
const MOST_RESULTS: usize = 8;
/// A picture of eight tests on a slow router.
const PATIENCE: Duration = Duration::from_secs(60);
/// The kinds of pictures, and whether one shows one test only.
const PLOTS: [(&str, bool); 6] = [
    ("all_scaled", true),
    ("ping_cdf", false),
    ("box_combine", false),
    ("totals", false),
    ("per_flow", true),
    ("tcp", true),
];

/// What `sqm compare --json` says of a test.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) summary: Value,
    findings: Value,
    grade: Value,
}

impl Run {
    /// The grade, and what stands in its way.
    pub(super) fn verdict(&self) -> Value {
        value!({"findings": self.findings, "grade": self.grade})
    }
}

#[derive(Debug, Deserialize)]
struct Comparison {
    runs: Vec<Run>,
    differences: Vec<Value>,
}

/// The figures of a result, and the pictures that it has something to draw in.
pub(super) async fn judge(site: &AppState, file: &Path) -> Result<(Run, Vec<String>), Problem> {
    let folder = scratch(site)?;
    let ended = child_compare("all", &folder.path, &[file.to_owned()]).await?;
    let mut told: Comparison = understand(&ended)?;
    let drawn = |name: &str| {
        // Of one test alone the name has no number.
        folder.path.join(format!("{name}.svg")).exists()
    };
    let plots = PLOTS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| drawn(name))
        .collect();
    let run = told
        .runs
        .pop()
        .ok_or_else(|| Problem::unavailable("the result holds no test"))?;
    Ok((run, plots))
}

pub(super) async fn tell(site: &AppState, query: Option<&str>) -> Handled {
    let ids = ids(query)?;
    let files = files(site, &ids)?;
    let Comparison { runs, differences } = compare(&files).await?;
    let runs: Vec<Value> = ids
        .iter()
        .zip(runs)
        .map(|(id, run)| value!({"id": id, "name": site.runs.name(id), "summary": run.summary, "verdict": run.verdict()}))
        .collect();
    Ok(json(
        StatusCode::OK,
        &value!({"runs": runs, "differences": differences}),
    ))
}

pub(super) async fn plot_one(site: &AppState, id: &str, plot: &str) -> Handled {
    let known = PLOTS.iter().find(|(name, _)| *name == plot);
    let (name, _) = known.ok_or_else(no_picture)?;
    draw(site, name, &files(site, &[id])?).await
}

pub(super) async fn plot(site: &AppState, plot: &str, query: Option<&str>) -> Handled {
    let ids = ids(query)?;
    let known = PLOTS.iter().find(|(name, is_of_one)| *name == plot && !is_of_one);
    let (name, _) = known.ok_or_else(no_picture)?;
    draw(site, name, &files(site, &ids)?).await
}

async fn compare(files: &[PathBuf]) -> Result<Comparison, Problem> {
    let mut arguments: Vec<OsString> = ["compare", "--json", "--"].map(Into::into).to_vec();
    arguments.extend(files.iter().map(|file| file.clone().into()));
    let ended = child::run(child::command(&arguments), PATIENCE).await;
    understand(&ended.map_err(|error| Problem::unavailable(format!("{error:#}")))?)
}

fn understand(ended: &Ended) -> Result<Comparison, Problem> {
    serde_json::from_slice(&ended.output)
        .map_err(|_| Problem::unavailable(format!("the results cannot be read: {}", ended.reason())))
}

async fn child_compare(plot: &str, folder: &Path, files: &[PathBuf]) -> Result<Ended, Problem> {
    let mut arguments: Vec<OsString> = ["compare", "--json", "--plot", plot, "--out"]
        .map(Into::into)
        .to_vec();
    arguments.extend([folder.into(), "--".into()]);
    arguments.extend(files.iter().map(|file| file.clone().into()));
    let ended = child::run(child::command(&arguments), PATIENCE).await;
    ended.map_err(|error| silent(&error))
}

async fn draw(site: &AppState, plot: &str, files: &[PathBuf]) -> Handled {
    let folder = scratch(site)?;
    let ended = child_compare(plot, &folder.path, files).await?;
    let drawn = fs::read_dir(&folder.path)
        .map_err(|error| silent(&error))?
        .flatten()
        .next();
    match drawn {
        Some(picture) => Ok(picture_of(
            fs::read(picture.path()).map_err(|error| silent(&error))?,
        )),
        None if ended.status.success() => Err(Problem::not_found(
            "the tests hold nothing to draw in this picture",
        )),
        None => Err(silent(&ended.reason())),
    }
}

fn scratch(site: &AppState) -> Result<Scratch, Problem> {
    site.runs.scratch().map_err(|error| silent(&error))
}

fn silent(error: &dyn std::fmt::Display) -> Problem {
    Problem::unavailable(format!("the picture cannot be drawn: {error}"))
}

/// SVG for a browser.
pub(super) fn picture_of(bytes: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut answer = full(StatusCode::OK, "image/svg+xml", bytes);
    // Alone in a window it may do even less than the page.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    answer
}

fn ids(query: Option<&str>) -> Result<Vec<&str>, Problem> {
    let ids = Query::of(query, &["ids"])?.text("ids").unwrap_or_default();
    // A comma may come as it is or escaped.
    let ids: Vec<&str> = ids.split(',').flat_map(|id| id.split("%2C")).collect();
    if (1..=MOST_RESULTS).contains(&ids.len()) && ids.iter().all(|id| is_id(id)) {
        return Ok(ids);
    }
    Err(Problem::bad_request(
        "ids are one to eight tests, with commas between",
    ))
}

fn files(site: &AppState, ids: &[&str]) -> Result<Vec<PathBuf>, Problem> {
    ids.iter().map(|id| site.runs.result(id)).collect()
}

pub(super) fn no_picture() -> Problem {
    Problem::not_found("there is no such picture")
}
