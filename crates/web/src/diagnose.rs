//! Diagnosis: the doctor, the report, the daemon's events, and the audit log.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use serde::Serialize;
use sqm_api::doctor::{Doctor, Finding};
use tokio::sync::mpsc::channel;

use super::audit;
use super::problem::{ApiResult, Problem};
use super::query::Query;
use crate::app_state::{AppState, Front};
use sqm_http::{KEEP_ALIVE, KEEP_ALIVE_INTERVAL, full, json};

/// Events that are queued for a browser; a slower one is disconnected.
const MOST_EVENTS: usize = 64;

/// The answer to `GET /doctor`.
#[derive(Serialize)]
pub(super) struct Answer {
    findings: Vec<AnsweredFinding>,
    fixed: Vec<AnsweredFinding>,
    unknown: Vec<String>,
    checks: usize,
}

#[derive(Serialize)]
struct AnsweredFinding {
    id: String,
    interface: Option<String>,
    what: String,
    evidence: Vec<String>,
    remedy: String,
    fixable: bool,
}

pub(super) async fn doctor(state: &Arc<AppState>, fix: bool) -> Result<Answer, Problem> {
    let diagnosis = state.daemon.doctor(Doctor { fix }).await?;
    let answered = |findings: Vec<Finding>| findings.into_iter().map(AnsweredFinding::from).collect();
    Ok(Answer {
        findings: answered(diagnosis.findings),
        fixed: answered(diagnosis.fixed),
        unknown: diagnosis.unknown,
        checks: diagnosis.checks,
    })
}

impl From<Finding> for AnsweredFinding {
    fn from(finding: Finding) -> Self {
        Self {
            id: finding.id,
            interface: finding.interface,
            what: finding.what,
            evidence: finding.evidence,
            remedy: finding.remedy,
            fixable: finding.fix.is_some(),
        }
    }
}

pub(super) async fn report(state: &Arc<AppState>) -> ApiResult {
    let text = state.daemon.report().await?;
    let mut answer = full(StatusCode::OK, "text/plain; charset=utf-8", text);
    let name = HeaderValue::from_static("attachment; filename=\"sqm-report.txt\"");
    answer.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(answer)
}

/// The daemon's events, until either side ends the connection.
pub(super) async fn events(state: &Arc<AppState>) -> ApiResult {
    let mut body = state.daemon.events().await?;
    let (sender, receiver) = channel(MOST_EVENTS);
    tokio::spawn(async move {
        loop {
            let bytes = tokio::select! {
                frame = body.frame() => match frame {
                    Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                    _ => return,
                },
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => KEEP_ALIVE,
                () = sender.closed() => return,
            };
            if sender.try_send(bytes).is_err() {
                return;
            }
        }
    });
    Ok(sqm_http::events(receiver))
}

#[derive(Serialize)]
struct AuditEntries {
    entries: Vec<audit::Entry>,
}

pub(super) fn audit(front: &Front, query: &Query<'_>) -> ApiResult {
    let last = query.number("last", 1, 1000, 100)?;
    let entries = front.audit.last(last as usize);
    Ok(json(StatusCode::OK, &AuditEntries { entries }))
}
