//! The findings of `sqm doctor`, as `--json` prints them and the daemon passes them on.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqm_plan::OptionValue;

/// The body of `POST /v1/doctor`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doctor {
    /// Make the safe changes, and look again.
    pub fix: bool,
}

/// The output of `sqm doctor --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The faults that are there now.
    pub findings: Vec<Finding>,
    /// Findings before `--fix` that are gone after it.
    pub fixed: Vec<Finding>,
    /// Differences from the configuration that are meant to be there.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Facts that the kernel does not tell: reasons why a finding may be missing.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Number of checks that were made.
    #[serde(default)]
    pub checks: usize,
}

/// A fault, or a setting that is probably not intended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Identifier for programs.
    pub id: String,
    /// Interface of the section concerned; none if the finding concerns the machine.
    pub interface: Option<String>,
    /// The fault and its effect.
    pub what: String,
    /// The observations that show it.
    pub evidence: Vec<String>,
    /// The suggested remedy.
    pub remedy: String,
    /// The change that `--fix` makes, if there is a safe one.
    pub fix: Option<Fix>,
}

/// A safe change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Fix {
    /// Set options, and bring the configuration into force.
    SetOptions {
        /// Index of the section in the file, from 0.
        section: usize,
        /// The options.
        #[serde(serialize_with = "write_options", deserialize_with = "read_options")]
        options: Vec<OptionValue>,
    },
    /// Bring the configuration into force.
    Start,
}

/// An option as a program reads it.
#[derive(Serialize, Deserialize)]
struct Named {
    name: String,
    value: String,
}

fn write_options<S: Serializer>(options: &[OptionValue], serializer: S) -> Result<S::Ok, S::Error> {
    let named = options.iter().map(|option| {
        let (name, value) = option.clone().into();
        Named { name, value }
    });
    serializer.collect_seq(named)
}

fn read_options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OptionValue>, D::Error> {
    let named: Vec<Named> = Deserialize::deserialize(deserializer)?;
    let options = named.into_iter().map(|option| (option.name, option.value).into());
    Ok(options.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_has_named_fields() {
        let text =
            r#"{"action":"set_options","section":1,"options":[{"name":"interface","value":"eth0.7"}]}"#;
        let fix = Fix::SetOptions {
            section: 1,
            options: vec![OptionValue::Interface("eth0.7".to_owned())],
        };
        assert_eq!(serde_json::to_string(&fix).unwrap(), text);
        assert_eq!(serde_json::from_str::<Fix>(text).unwrap(), fix);
        assert_eq!(
            serde_json::to_string(&Fix::Start).unwrap(),
            r#"{"action":"start"}"#
        );
    }
}
