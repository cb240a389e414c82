//! Any bytes are read as a log of autorate without a panic. A line that was parsed is written and parsed to the same value, and neither
//! a controller that replays it nor figures and pictures panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_autorate::Autorate;
use sqm_autorate::trace::Entry;
use sqm_autorate::trace::replay::Replay;
use sqm_measure::autorate_trace::read_from;
use sqm_measure::plot::autorate::{distribution, over_time};
use sqm_measure::autorate_trace::Recording;

fuzz_target!(|bytes: &[u8]| {
    let mut replay = Replay::new(|now, beginning| Autorate::new(now, beginning.bounds, beginning.learned));
    let mut rows = Vec::new();
    let _ = read_from(bytes, &mut |_, row| {
        assert_eq!(Entry::parse(&row.to_string()).as_ref(), Ok(&row));
        replay.play(&row);
        rows.push(row);
    });
    let recording = Recording::of(String::from("fuzz"), &rows);
    let _ = recording.figures();
    for picture in [over_time(&recording), distribution(&[&recording], &[])].into_iter().flatten() {
        assert!(!picture.contains("NaN") && !picture.contains("\"inf"));
    }
});
