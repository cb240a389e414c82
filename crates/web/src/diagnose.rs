//! What is wrong, and what was done: the doctor, the report, the daemon's events, the log of changes.

use std::sync::Arc;

use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json as value};

use super::problem::{Handled, Problem};
use super::query::Query;
use crate::app_state::AppState;
use sqm_http::{self, full, json};

/// What `sqm doctor --json` says.
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

pub(super) async fn doctor(site: &Arc<AppState>, fix: bool) -> Result<Value, Problem> {
    let body = value!({"fix": fix});
    let diagnosis: Diagnosis = site.daemon.send(Method::POST, "/v1/doctor", &body).await?;
    let told = |findings: Vec<Finding>| -> Vec<Value> { findings.into_iter().map(Finding::told).collect() };
    Ok(value!({"findings": told(diagnosis.findings), "fixed": told(diagnosis.fixed)}))
}

impl Finding {
    fn told(self) -> Value {
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

pub(super) async fn report(site: &Arc<AppState>) -> Handled {
    let text = site.daemon.bytes("/v1/report").await?;
    let mut answer = full(StatusCode::OK, "text/plain; charset=utf-8", text);
    let name = HeaderValue::from_static("attachment; filename=\"sqm-report.txt\"");
    answer.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(answer)
}

pub(super) async fn events(site: &Arc<AppState>) -> Handled {
    Ok(sqm_http::events(site.daemon.events().await?))
}

pub(super) fn audit(site: &AppState, query: Option<&str>) -> Handled {
    let last = Query::of(query, &["last"])?.number("last", 1, 1000, 100)?;
    let entries = site.audit.last(last as usize);
    Ok(json(StatusCode::OK, &value!({"entries": entries})))
}
