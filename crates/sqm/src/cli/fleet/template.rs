//! One configuration for many routers: `{{NAME}}` stands for a value of the router.

use std::collections::BTreeMap;

/// Parses `NAME=VALUE`.
pub(super) fn parse_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not NAME=VALUE"))?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match is_name {
        true => Ok((name.to_owned(), value.to_owned())),
        false => Err(format!("'{name}' is no name of a value: letters, digits and '_'")),
    }
}

/// Fills the placeholders.
///
/// # Errors
/// The line of a placeholder without a value, and its name.
pub(super) fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("{{") {
        filled.push_str(before);
        let line = filled.matches('\n').count() + 1;
        let (name, behind) = behind
            .split_once("}}")
            .ok_or_else(|| format!("line {line}: a placeholder that begins with {{{{ has no }}}}"))?;
        let value = values.get(name.trim()).ok_or_else(|| {
            format!(
                "line {line}: this router has no value '{}' ('sqm fleet enroll ROUTER --value {}=...')",
                name.trim(),
                name.trim()
            )
        })?;
        filled.push_str(value);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_missing_values_are_named() {
        let values = BTreeMap::from([("download".to_owned(), "80mbit".to_owned())]);
        let text = "config queue\n\toption download '{{download}}'\n\toption upload '{{ upload }}'\n";
        let error = fill(text, &values).expect_err("a value is missing");
        assert!(
            error.starts_with("line 3: this router has no value 'upload'"),
            "{error}"
        );
        let values: BTreeMap<_, _> = values
            .into_iter()
            .chain([("upload".to_owned(), "20mbit".to_owned())])
            .collect();
        let filled = fill(text, &values).expect("all are there");
        assert_eq!(
            filled,
            "config queue\n\toption download '80mbit'\n\toption upload '20mbit'\n"
        );
        assert!(fill("a {{b", &values).is_err());
        assert_eq!(parse_value("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(parse_value("a").is_err() && parse_value("=b").is_err());
    }
}
