//! Values that a shell completes, for arguments with a parser of their own.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// Parses with `parse`, which explains its errors, and has the shell complete `names`.
#[derive(Clone)]
pub struct Suggested<T> {
    /// The values that the shell offers.
    pub names: fn() -> Vec<&'static str>,
    /// Parses any value, also one that is not offered.
    pub parse: fn(&str) -> Result<T, String>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Suggested<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let parse = self.parse;
        let parser = move |text: &str| parse(text);
        TypedValueParser::parse_ref(&parser, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// Accepts every text, for a name that is looked up later.
///
/// # Errors
///
/// None.
pub fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}
