//! Reading a configuration takes memory in proportion to its text: a file of the largest size that the program reads needs
//! less than the service may have. The only test of its process, whose peak it looks at.

mod support;

use sqm_plan::device::Device;

/// The largest configuration that the program reads, bytes.
const LARGEST: usize = 1 << 20;
/// The most memory that reading it may take, kB for each kB of text.
const MOST: u64 = 48;

#[test]
fn a_large_file_takes_little_memory() {
    // The largest one takes a second for each kind of text in a debug build.
    let is_nightly = std::env::var_os("SQM_NIGHTLY").is_some();
    let size = if is_nightly { LARGEST } else { LARGEST / 4 };
    let before = peak_kb();
    for kind in &support::HOSTILE {
        let piece = (kind.make)(1000).len().div_ceil(1000);
        let mut text = (kind.make)(size / piece + 1).into_bytes();
        text.truncate(size);
        let _ = sqm_plan::load(&text, "sqm", &Device::absent);
        let taken = peak_kb() - before;
        assert!(taken < MOST * (size as u64 >> 10), "{}: {taken} kB", kind.name);
    }
}

/// The most memory that this process ever held.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let peak = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    peak.expect("Linux tells the peak")
}
