//! Any text is a recorded line of the autorate bench or is refused: as a CSV file, as mahimahi's packet-delivery files, and as the rates of a
//! log. A line that was read has bounds and loads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sqm_core::direction::PerDirection;
use sqm_core::units::Rate;
use sqm_measure::autorate_trace::read_from;
use sqm_sim::autorate_bench::{Conditions, LoadCycle, LogRates, Opportunities, Recorded, Refused};

fn mahimahi(text: &str) -> Result<Recorded, Refused> {
    let (download, upload) = text.split_once('#').unwrap_or((text, text));
    Recorded::from_mahimahi(&PerDirection {
        download: Opportunities::parse(download)?,
        upload: Opportunities::parse(upload)?,
    })
}

fn log(text: &str) -> Result<Recorded, Refused> {
    let mut rates = LogRates::default();
    let _ = read_from(text.as_bytes(), &mut |_, entry| rates.add(&entry));
    Recorded::from_log(rates)
}

fuzz_target!(|text: &str| {
    for recorded in [Recorded::from_csv(text), mahimahi(text), log(text)].into_iter().flatten() {
        let trace = recorded.trace("fuzz", &Conditions::default());
        assert!(trace.bounds.download.min > Some(Rate::from_bits_per_sec(0)));
        assert!(!trace.loads.is_empty());
    }
    if let Ok(load) = text.parse::<LoadCycle>() {
        assert_eq!(load.to_string().parse(), Ok(load));
    }
});
