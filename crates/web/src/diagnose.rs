//! Diagnosis: the doctor, the report, the daemon's events, and the audit log.

use std::sync::Arc;

use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json as value};

use super::problem::{ApiResult, Problem};
use super::query::Query;
use crate::app_state::AppState;
use sqm_http::{self, full, json};

/// The output of `sqm doctor --json`.
#[derive(Deserialize)]
struct Diagnosis {
    findings: Vec<Finding>,
    fixed: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    id: String,
    interface: Option<String>,
    what: String,
    evidence: Vec<String>,
    remedy: String,
    fix: Option<Value>,
}

pub(super) async fn doctor(state: &Arc<AppState>, fix: bool) -> Result<Value, Problem> {
    let body = value!({"fix": fix});
    let diagnosis: Diagnosis = state.daemon.send(Method::POST, "/v1/doctor", &body).await?;
    let answers =
        |findings: Vec<Finding>| -> Vec<Value> { findings.into_iter().map(Finding::into_answer).collect() };
    Ok(value!({"findings": answers(diagnosis.findings), "fixed": answers(diagnosis.fixed)}))
}

impl Finding {
    fn into_answer(self) -> Value {
        value!({
            "id": self.id,
            "interface": self.interface,
            "what": self.what,
            "evidence": self.evidence,
            "remedy": self.remedy,
            "fixable": self.fix.is_some(),
        })
    }
}

pub(super) async fn report(state: &Arc<AppState>) -> ApiResult {
    let text = state.daemon.bytes("/v1/report").await?;
    let mut answer = full(StatusCode::OK, "text/plain; charset=utf-8", text);
    let name = HeaderValue::from_static("attachment; filename=\"sqm-report.txt\"");
    answer.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(answer)
}

pub(super) async fn events(state: &Arc<AppState>) -> ApiResult {
    Ok(sqm_http::events(state.daemon.events().await?))
}

pub(super) fn audit(state: &AppState, query: Option<&str>) -> ApiResult {
    let last = Query::of(query, &["last"])?.number("last", 1, 1000, 100)?;
    let entries = state.audit.last(last as usize);
    Ok(json(StatusCode::OK, &value!({"entries": entries})))
}
