//! Bytes as hexadecimal digits in the state file, to be compared with the output of `strace` or a capture of netlink.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&HEXLOWER.encode(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .map_err(|_| D::Error::custom("expected pairs of hexadecimal digits"))
}
