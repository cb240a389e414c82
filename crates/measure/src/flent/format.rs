//! Constants of Flent's file format.

/// The key of our own result in the `metadata` of a file.
pub const OWN_KEY: &str = "SQM";
/// Version of the format that is written, and the newest that is read.
pub const VERSION: u64 = 4;
/// Length of the idle phases before and after the load, in seconds: Flent's default. A file does not say how long they are. Flent leaves
/// this much out at both ends when it plots distributions.
pub const DELAY_S: f64 = 5.0;
