//! The documents that commands print with `--json`. docs/reference/json.md lists their fields.

use anyhow::Context;
use serde::Serialize;

use sqm_process::Failure;

/// Version of all documents. It changes if a field is removed or gets another meaning.
const VERSION: u32 = 1;

/// A document: an object's fields after the version.
#[derive(Serialize)]
pub struct Document<'a, T> {
    version: u32,
    #[serde(flatten)]
    fields: &'a T,
}

/// A document with the fields of a struct.
pub const fn object<T: Serialize>(fields: &T) -> Document<'_, T> {
    Document {
        version: VERSION,
        fields,
    }
}

/// A list of documents.
pub fn list<T: Serialize>(rows: &[T]) -> Vec<Document<'_, T>> {
    rows.iter().map(object).collect()
}

/// Prints a document, or a list of documents.
///
/// # Errors
///
/// The value cannot be written as JSON.
pub fn print(document: &impl Serialize) -> Result<(), Failure> {
    outln!("{}", pretty(document)?);
    Ok(())
}

/// A value as JSON, with a line for each field.
///
/// # Errors
///
/// The value cannot be written as JSON.
pub fn pretty(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(indented(&serde_json::to_string(value).context("writing JSON")?))
}

/// Compact JSON with line ends and indentation, as `serde_json::to_string_pretty` sets them. That function compiles the serialization of
/// every type a second time, which takes about 20 kB on a router.
fn indented(compact: &str) -> String {
    let mut text = String::with_capacity(2 * compact.len());
    let mut depth = 0;
    let mut is_in_string = false;
    let mut is_escaped = false;
    let mut is_opened = false;
    for character in compact.chars() {
        if is_in_string {
            is_in_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
            text.push(character);
            continue;
        }
        let is_end = matches!(character, '}' | ']');
        depth -= usize::from(is_end);
        // An empty object or list stays on its line.
        if is_end != is_opened {
            break_line(&mut text, depth);
        }
        is_opened = matches!(character, '{' | '[');
        depth += usize::from(is_opened);
        is_in_string = character == '"';
        text.push(character);
        match character {
            ',' => break_line(&mut text, depth),
            ':' => text.push(' '),
            _ => {}
        }
    }
    text
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a\\\\\"{}:,\n ü\\[\\]]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a\"\\\\:]{0,3}", inner, 0..4).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn documents_have_the_form_of_serde_json(value in any_json()) {
            prop_assert_eq!(pretty(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap());
        }
    }

    #[test]
    fn empty_lists_and_objects_stay_on_their_line() {
        let text = pretty(&json!([[], {}, {"a": [{}]}])).unwrap();
        assert_eq!(
            text,
            "[\n  [],\n  {},\n  {\n    \"a\": [\n      {}\n    ]\n  }\n]"
        );
    }
}
