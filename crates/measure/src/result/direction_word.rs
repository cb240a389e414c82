//! A direction as result files and the test protocol write it: `down` or `up`.
//!
//! For `#[serde(with = "direction_word")]`; [`list`] and [`optional`] are for several directions and for one that may be absent.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqm_core::direction::Direction;

#[derive(Serialize, Deserialize)]
#[serde(remote = "Direction")]
enum Word {
    #[serde(rename = "down")]
    Download,
    #[serde(rename = "up")]
    Upload,
}

#[derive(Serialize, Deserialize)]
struct Written(#[serde(with = "Word")] Direction);

/// Writes one direction.
pub fn serialize<S: Serializer>(direction: &Direction, serializer: S) -> Result<S::Ok, S::Error> {
    Word::serialize(direction, serializer)
}

/// Reads one direction.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Direction, D::Error> {
    Word::deserialize(deserializer)
}

/// A list of directions.
pub mod list {
    use super::{Deserialize, Deserializer, Direction, Serializer, Written};

    /// Writes the directions.
    pub fn serialize<S: Serializer>(directions: &[Direction], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(directions.iter().copied().map(Written))
    }

    /// Reads the directions.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Direction>, D::Error> {
        let written = Vec::<Written>::deserialize(deserializer)?;
        Ok(written.into_iter().map(|written| written.0).collect())
    }
}

/// A direction that may be absent.
pub mod optional {
    use super::{Deserialize, Deserializer, Direction, Serialize, Serializer, Written};

    /// Writes the direction, or null.
    pub fn serialize<S: Serializer>(direction: &Option<Direction>, serializer: S) -> Result<S::Ok, S::Error> {
        direction.map(Written).serialize(serializer)
    }

    /// Reads the direction, or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Direction>, D::Error> {
        Ok(Option::<Written>::deserialize(deserializer)?.map(|written| written.0))
    }
}
