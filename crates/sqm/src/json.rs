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
    let text = serde_json::to_string_pretty(document).context("writing JSON")?;
    outln!("{text}");
    Ok(())
}
