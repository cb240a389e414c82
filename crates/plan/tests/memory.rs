//! Reading a configuration takes memory in proportion to its text: a file of the largest size that the program reads needs
//! less than the service may have. The only test of its process, whose peak it looks at.

mod support;

use sqm_plan::device::Device;

/// The largest configuration that the program reads, bytes.
const LARGEST: usize = 1 << 20;
/// The most memory that reading it may take, kB.
const MOST_KB: u64 = 48 << 10;

#[test]
fn the_largest_file_takes_little_memory() {
    let before = peak_kb();
    for kind in &support::HOSTILE {
        let piece = (kind.make)(1000).len().div_ceil(1000);
        let mut text = (kind.make)(LARGEST / piece + 1).into_bytes();
        text.truncate(LARGEST);
        let _ = sqm_plan::load(&text, "sqm", &Device::absent);
        let taken = peak_kb() - before;
        assert!(taken < MOST_KB, "{}: {taken} kB", kind.name);
    }
}

/// The most memory that this process ever held.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let peak = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    peak.expect("Linux tells the peak")
}
