//! Limits the memory that reading files may take. Pure.
//!
//! A limit for the length of the text would not limit the memory: a sample can be as short as `{},`. The memory of the decoded
//! values is therefore counted.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Largest memory for all results and logs that are read together, bytes. A choice.
pub const ALL: usize = 96 << 20;
/// Memory for a JSON object besides its values, bytes: that of the largest object in a result, a sample of `TCP_INFO`.
const OBJECT: usize = 152;
/// Memory for a value in a list, bytes, at most.
const VALUE: usize = 12;
/// Largest number of names in one JSON object, and of items in a list of flows, series and the like. A choice.
pub(crate) const FEW: usize = 10_000;

/// The memory that is left.
#[derive(Clone, Debug)]
pub struct Room(Cell<usize>);

impl Default for Room {
    fn default() -> Self {
        Self(Cell::new(ALL))
    }
}

impl Room {
    /// Takes `bytes` bytes. Fails if there are not that many left.
    pub fn take(&self, bytes: usize) -> Result<(), String> {
        match self.0.get().checked_sub(bytes) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(format!(
                "it has too many samples: all files together may take {} MiB",
                ALL >> 20
            )),
        }
    }

    /// Refuses a text that could take more memory than is left, counted by its braces and commas.
    pub(crate) fn check(&self, json: &str) -> Result<(), String> {
        let mut most = 0;
        for byte in json.as_bytes() {
            most += match byte {
                b'{' => OBJECT,
                b',' => VALUE,
                _ => 0,
            };
        }
        self.clone().take(most)
    }
}

/// An object of JSON with at most [`FEW`] names.
pub(crate) struct Few<T>(pub(crate) BTreeMap<String, T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        few_names(deserializer).map(Self)
    }
}

/// Deserializes a map with at most [`FEW`] names.
pub(crate) fn few_names<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Names<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {FEW} names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut few = BTreeMap::new();
            while let Some((name, value)) = map.next_entry()? {
                few.insert(name, value);
                if few.len() > FEW {
                    return Err(A::Error::custom(format!("more than {FEW} names in one object")));
                }
            }
            Ok(few)
        }
    }
    deserializer.deserialize_map(Names(PhantomData))
}

/// Deserializes a list with at most [`FEW`] items.
pub(crate) fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let mut few = Vec::new();
    let mut count = 0;
    each(deserializer, &mut |item| {
        count += 1;
        few.push(item);
        match count > FEW {
            true => Err(format!("more than {FEW} items in one list")),
            false => Ok(()),
        }
    })?;
    Ok(few)
}

/// Passes every item of a list to `take` and keeps none.
pub(crate) fn each<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    take: &mut dyn FnMut(T) -> Result<(), String>,
) -> Result<(), D::Error> {
    struct Items<'a, T>(&'a mut dyn FnMut(T) -> Result<(), String>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<'_, T> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
            while let Some(item) = items.next_element()? {
                (self.0)(item).map_err(A::Error::custom)?;
            }
            Ok(())
        }
    }
    deserializer.deserialize_seq(Items(take))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_by_the_decoded_values() {
        let room = Room::default();
        assert_eq!(room.check(&"{},".repeat(500_000)), Ok(()));
        assert!(room.check(&"{},".repeat(700_000)).unwrap_err().contains("96 MiB"));
        assert_eq!(room.check(&"0,".repeat(8_000_000)), Ok(()));
        assert!(room.check(&"0,".repeat(9_000_000)).is_err());
        room.take(90 << 20).unwrap();
        assert!(room.take(10 << 20).is_err());
        assert_eq!(room.take(5 << 20), Ok(()), "what did not fit was not taken");
    }

    #[test]
    fn lists_and_objects_have_a_limit() {
        let names: Vec<String> = (0..=FEW).map(|n| format!("\"{n}\":0")).collect();
        let text = format!("{{{}}}", names.join(","));
        assert!(serde_json::from_str::<Few<u8>>(&text).is_err());
        assert!(serde_json::from_str::<Few<u8>>("{\"a\":1}").is_ok());
    }
}
