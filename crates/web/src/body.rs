//! The JSON body of a request.

use bytes::Bytes;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::Problem;

/// Decodes the body of a request, which must be a JSON object.
pub(super) fn body<T: DeserializeOwned>(request: Request<Bytes>) -> Result<T, Problem> {
    decode(&json_of(request)?)
}

/// Like [`body`], for a type of the daemon's API, which accepts null for a field that is left out.
pub(super) fn body_without_null<T: DeserializeOwned>(request: Request<Bytes>) -> Result<T, Problem> {
    let bytes = json_of(request)?;
    let fields: Map<String, Value> = decode(&bytes)?;
    match fields.iter().find(|(_, value)| value.is_null()) {
        Some((name, _)) => Err(Problem::bad_request(format!(
            "the body is not as documented: {name} is null"
        ))),
        None => decode(&bytes),
    }
}

/// The body of a request, if its header says that it is JSON.
fn json_of(request: Request<Bytes>) -> Result<Bytes, Problem> {
    let kind = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return Err(Problem::not_json());
    }
    Ok(request.into_body())
}

/// Decodes a JSON object.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let wrong = |error| Problem::bad_request(format!("the body is not as documented: {error}"));
    let mut value: Value = serde_json::from_slice(bytes).map_err(wrong)?;
    // serde would also accept a list of values for the fields of an object.
    if !value.is_object() {
        return Err(Problem::bad_request(
            "the body is not as documented: it is not an object",
        ));
    }
    make_whole(&mut value);
    serde_json::from_value(value).map_err(wrong)
}

/// Turns numbers such as 60.0 into integers: JSON does not distinguish the two.
fn make_whole(value: &mut Value) {
    /// 2^53: up to here an f64 represents every whole number.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < MOST);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}
