//! The answers of a program for routers to Flent's result files, which it does not read or write.

use std::io::{self, Read};

use super::{Text, invalid};
use crate::result::TestResult;
use crate::room::Room;

const REASON: &str = "it is in the format of Flent, which this program for routers does not have: use the full program, or a .json file";

pub(super) fn parse(_: &str, _: &Room) -> Result<TestResult, String> {
    Err(REASON.to_owned())
}

pub(super) fn pack(_: &TestResult) -> io::Result<Vec<u8>> {
    Err(invalid(REASON.to_owned()))
}

pub(super) fn unpack(_: &mut Text, _: impl Read) -> io::Result<()> {
    Err(invalid(REASON.to_owned()))
}
