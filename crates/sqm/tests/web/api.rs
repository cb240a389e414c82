//! Checks answers against docs/openapi.yaml.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Value, json};

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    serde_norway::from_str(include_str!("../../../../docs/openapi.yaml")).expect("it is YAML")
});

const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

thread_local! {
    /// Operations that have succeeded in this test.
    static ANSWERED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Every path, with its parameters filled in.
pub(crate) fn paths() -> Vec<String> {
    let paths = DESCRIPTION["paths"].as_object().expect("there are paths");
    paths
        .keys()
        .map(|path| {
            path.replace("{id}", "20260131T235959-0123abcd")
                .replace("{plot}", "totals")
        })
        .collect()
}

/// The kinds of tests that the API accepts.
pub(crate) fn kinds() -> Value {
    let place = "/paths/~1tests/post/requestBody/content/application~1json/schema/anyOf";
    let forms = DESCRIPTION.pointer(place).and_then(Value::as_array);
    let names = forms.expect("they are listed").iter();
    names
        .flat_map(|form| {
            form["properties"]["kind"]["enum"]
                .as_array()
                .expect("it names kinds")
        })
        .cloned()
        .collect()
}

/// Fails unless this answer to this request is documented.
pub(crate) fn judge(method: &str, target: &str, code: u16, head: &str, body: &str) {
    let path = target.split('?').next().unwrap_or_default();
    let method = if method == "HEAD" {
        "get".to_owned()
    } else {
        method.to_lowercase()
    };
    let Some((template, item)) = find(path) else {
        // A path that is not described does not exist, or the request was malformed.
        assert!(
            [400, 403, 404, 405].contains(&code),
            "{method} {path} is not described and answers {code}"
        );
        return judge_as("Problem", &serde_json::from_str(body).expect("a problem is JSON"));
    };
    let Some(operation) = item.get(&method).filter(|_| METHODS.contains(&method.as_str())) else {
        assert!(
            [403, 405].contains(&code),
            "{method} {path} is not described and answers {code}"
        );
        return judge_as("Problem", &serde_json::from_str(body).expect("a problem is JSON"));
    };
    let name = operation["operationId"]
        .as_str()
        .expect("an operation has a name")
        .to_owned();
    if code < 300 {
        ANSWERED.with_borrow_mut(|answered| answered.insert(name));
    }
    let answers = &operation["responses"];
    let described = answers.get(code.to_string());
    let described =
        resolve(described.unwrap_or_else(|| panic!("{method} {path}: {code} is not described: {body}")));
    let kind = super::site::header(head, "content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    let Some(content) = described.get("content") else {
        assert_eq!((kind, body), ("", ""), "{template}: {code} has no content");
        return;
    };
    let content = content
        .get(kind)
        .unwrap_or_else(|| panic!("{template}: {code} is {kind}, which is not described"));
    if kind == "application/json" && !body.is_empty() {
        let value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{template}: {error}: {body}"));
        validate(&content["schema"], &value, &format!("{method} {target}: {code}"));
    }
}

/// Fails unless the value conforms to this schema.
pub(crate) fn judge_as(schema: &str, value: &Value) {
    validate(
        &json!({"$ref": format!("#/components/schemas/{schema}")}),
        value,
        schema,
    );
}

/// Fails if an operation of the description has never succeeded in this test.
pub(crate) fn nothing_was_left_out() {
    /// These succeed in other tests only: they need a change that waits for confirmation, a password, a search in
    /// progress, or a fleet.
    const ELSEWHERE: [&str; 13] = [
        "logIn",
        "putConfig",
        "confirmConfig",
        "revertConfig",
        "stopTune",
        "tuneLive",
        "acceptTune",
        "plotTune",
        "fixDoctor",
        "getFleet",
        "getFleetRouter",
        "getFleetRollOut",
        "logOut",
    ];
    let paths = DESCRIPTION["paths"].as_object().expect("there are paths");
    let operations = paths
        .values()
        .flat_map(|item| METHODS.map(|method| item.get(method)));
    let names = operations
        .flatten()
        .filter_map(|operation| operation["operationId"].as_str());
    let missing = ANSWERED.with_borrow(|answered| {
        names
            .filter(|name| !answered.contains(*name) && !ELSEWHERE.contains(name))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    assert!(missing.is_empty(), "never asked: {missing:?}");
}

fn find(path: &str) -> Option<(&'static str, &'static Value)> {
    let paths = DESCRIPTION["paths"].as_object().expect("there are paths");
    let is_it = |template: &str| {
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            (template.split('/').collect(), path.split('/').collect());
        ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|(ours, theirs)| {
                ours == theirs
                    || *ours == "{id}"
                        && (template.starts_with("/fleet/") || theirs.len() == 24 && theirs.contains('T'))
                    || *ours == "{plot}.svg" && theirs.ends_with(".svg")
            })
    };
    paths
        .iter()
        .find(|(template, _)| is_it(template))
        .map(|(template, item)| (template.as_str(), item))
}

fn resolve(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(place) => DESCRIPTION
            .pointer(place.trim_start_matches('#'))
            .expect("a reference leads somewhere"),
        None => value,
    }
}

fn validate(schema: &Value, value: &Value, what: &str) {
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "components": DESCRIPTION["components"],
        "allOf": [schema],
    });
    let validator = jsonschema::validator_for(&whole).expect("the schema is one");
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(
        errors.is_empty(),
        "{what} is not as described: {errors:?}\n{value}"
    );
}
