use proptest::prelude::*;
use sqm_autorate::trace::Entry;

use super::*;
use crate::autorate_bench::{Contender, Load, Signals, run};
use crate::reflector::seeded;

fn mbit(mbits: u64) -> Rate {
    Rate::from_kbits_per_sec(mbits * 1000)
}

fn mahimahi(download: &str, upload: &str) -> Result<Recorded, Refused> {
    Recorded::from_mahimahi(&PerDirection {
        download: Opportunities::parse(download)?,
        upload: Opportunities::parse(upload)?,
    })
}

/// A packet-delivery file of so many opportunities in each period of 40 ms.
fn opportunities(counts: &[u64]) -> String {
    let mut text = String::new();
    for (period, count) in (0..).zip(counts) {
        // The last opportunity is in the last millisecond of its period.
        for packet in 0..*count {
            text += &format!("{}\n", period * 40 + 39 - (count - 1 - packet) % 40);
        }
    }
    let mut lines: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    lines.sort_unstable();
    lines.iter().map(|millis| format!("{millis}\n")).collect()
}

#[test]
fn a_csv_file_gives_the_rate_at_each_time() {
    let text = "# where it is from\ntime_s,download_kbit,upload_kbit\n0,20000,3000\n\n1.5, 10000 ,500.0\n2,8000,1000\n";
    let recorded = Recorded::from_csv(text).expect("a recording");
    assert_eq!(recorded.length, Nanos::from_millis(2500));
    let at = |millis, direction| recorded.lines[direction].at(START + Nanos::from_millis(millis));
    assert_eq!(at(0, Direction::Download), mbit(20));
    assert_eq!(at(1499, Direction::Download), mbit(20));
    assert_eq!(at(1500, Direction::Download), mbit(10));
    assert_eq!(at(1500, Direction::Upload), Rate::from_bits_per_sec(500_000));
    assert_eq!(at(2499, Direction::Upload), mbit(1));
    // Beyond the end a line carries its mean: 3 Mbit/s for 1.5 s, 0.5 for 0.5 s and 1 Mbit/s for 0.5 s.
    assert_eq!(at(2500, Direction::Upload), Rate::from_bits_per_sec(2_100_000));
}

#[test]
fn a_packet_delivery_file_is_the_line_of_the_csv_file_with_its_rates() {
    let download: Vec<u64> = (0..50).map(|n| [0, 3, 41, 7][n % 4]).collect();
    let upload: Vec<u64> = (0..50).map(|n| [1, 0, 5][n % 3]).collect();
    let mut csv = String::new();
    for (index, (download, upload)) in download.iter().zip(&upload).enumerate() {
        let seconds = index as f64 * 0.04;
        // One opportunity of 1500 bytes in 40 ms is 300 kbit/s.
        csv += &format!("{seconds:.2},{},{}\n", download * 300, upload * 300);
    }
    // The download's file ends within a period, and the upload's file goes on for longer.
    let download = opportunities(&download) + "2003\n";
    let upload = opportunities(&[&upload[..], &[4, 4]].concat());
    let from_mahimahi = mahimahi(&download, &upload).expect("a recording");
    assert_eq!(from_mahimahi, Recorded::from_csv(&csv).expect("a recording"));
}

#[test]
fn the_rates_of_a_log_are_the_capacity_and_missing_time_is_short() {
    let entry = |at_s: u64, kbits: u64, start: &str| {
        let at = at_s * 1_000_000;
        let (down, up) = (kbits * 1000, kbits * 100);
        let line = format!("1,{at},0,{down},0,grow,{up},0,grow,\"{start}step\"");
        Entry::parse(&line).expect("a line of a log")
    };
    let log = |entries: &[Entry]| {
        let mut rates = LogRates::default();
        for entry in entries {
            rates.add(entry);
        }
        Recorded::from_log(rates)
    };
    let begin = "begin:x:1000:2000:3000:1000:2000:3000 ";
    let entries = [
        entry(100, 10_000, begin),
        entry(110, 20_000, ""),
        // Entries of an hour are missing.
        entry(3710, 30_000, ""),
        // The machine was started again.
        entry(5, 40_000, begin),
        entry(25, 50_000, ""),
    ];
    let recorded = log(&entries).expect("a recording");
    assert_eq!(recorded.length, Nanos::from_millis(120_000));
    let at = |second: u64| {
        recorded
            .lines
            .download
            .at(START + Nanos::from_millis(second * 1000))
    };
    assert_eq!([0, 9, 10, 99].map(at), [10, 10, 20, 20].map(mbit));
    assert_eq!([100, 119].map(at), [40, 40].map(mbit));
    assert_eq!(recorded.lines.upload.at(START), mbit(1));

    let unshaped = [
        entry(0, 1000, "begin:x:1000:2000:3000:-:-:- "),
        entry(10, 1000, ""),
    ];
    let refused = log(&unshaped).expect_err("the upload is not shaped");
    assert!(refused.to_string().contains("both directions"), "{refused}");
    assert!(log(&[]).is_err());
}

#[test]
fn a_bad_file_is_refused_with_its_line() {
    for (text, line, reason) in [
        ("0,1000,1000\n1,1000\n", Some(2), "not three numbers"),
        ("# x\n\n0,1000,1000\n1,1000,much\n", Some(4), "not three numbers"),
        ("0,1000,1000,1\n", Some(1), "not three numbers"),
        ("0,1000,1000\n1,1000,1000\n1,1000,1000\n", Some(3), "not after"),
        ("-1,1000,1000\n", Some(1), "from 0 to 86400"),
        ("1700000000,1000,1000\n", Some(1), "from 0 to 86400"),
        ("nan,1000,1000\n", Some(1), "from 0 to 86400"),
        ("0,1000,-1\n", Some(1), "below 0"),
        ("0,inf,1\n", Some(1), "100 Gbit/s"),
        ("0,1000,1000\n", None, "fewer than two"),
        ("", None, "fewer than two"),
        ("0,1000,1000\n0.1,1000,1000\n", None, "shorter than a second"),
        ("0,1000,1000\n86400,1000,1000\n", None, "longer than a day"),
        ("0,1000,1\n5,1000,2\n", None, "upload is below 10 kbit/s"),
        ("0,0,1000\n5,0,1000\n", None, "download is below 10 kbit/s"),
    ] {
        let refused = Recorded::from_csv(text).expect_err(text);
        assert_eq!(refused.line, line, "{text}");
        assert!(refused.reason.contains(reason), "{text}: {refused}");
    }
    for (text, line, reason) in [
        ("1\nx\n", 2, "milliseconds"),
        ("1\n1.5\n", 2, "milliseconds"),
        ("5\n\n4\n", 3, "before"),
        ("86400001\n", 1, "a day"),
    ] {
        let refused = Opportunities::parse(text).expect_err(text);
        assert_eq!(refused.line, Some(line), "{text}");
        assert!(refused.reason.contains(reason), "{text}: {refused}");
    }
    let short = mahimahi("1\n2000\n", "1\n900\n").expect_err("too short");
    assert!(short.reason.contains("shorter than a second"), "{short}");
}

#[test]
fn a_load_is_written_as_flows_and_seconds() {
    let usual = LoadCycle::default();
    assert_eq!(usual.to_string(), "4/0:20,0/0:5,4/4:20,0/1:15,1/0:20,0/0:5");
    assert_eq!(usual.to_string().parse(), Ok(usual));
    for wrong in [
        "",
        "4/0",
        "4:20",
        "5/0:20",
        "0/5:20",
        "1/1:0",
        "1/1:90000",
        "1/-1:5",
        "1/1:5,",
        "0/0:5",
        "1/1:1.5",
    ] {
        assert!(wrong.parse::<LoadCycle>().is_err(), "{wrong}");
    }
    let load: LoadCycle = "2/1:3, 0/4:5".parse().expect("a load");
    let parts: Vec<_> = load
        .until(START + Nanos::from_millis(9000))
        .into_iter()
        .map(
            |(
                at,
                Load {
                    downloads, uploads, ..
                },
            )| (at.since(START).0 / 1_000_000_000, downloads, uploads),
        )
        .collect();
    assert_eq!(parts, [(0, 2, 1), (3, 0, 4), (8, 2, 1)]);
}

#[test]
fn the_conditions_are_those_of_the_run() {
    let recorded = Recorded::from_csv("0,12000,3000\n10,8000,1000\n").expect("a recording");
    let trace = recorded.trace("mine", &Conditions::default());
    assert_eq!(trace.length, Nanos::from_millis(20_000));
    // A second, a tenth and four times the mean of 10 and 2 Mbit/s.
    assert_eq!(trace.buffers.download, Bytes(1_250_000));
    assert_eq!(trace.buffers.upload, Bytes(250_000));
    let bounds = trace.bounds.download;
    assert_eq!(
        [bounds.min, bounds.base, bounds.max],
        [1, 10, 40].map(|mbits| Some(mbit(mbits)))
    );
}

/// The line is dead at the beginning and at the end, where packets are still queued.
#[test]
fn a_recording_may_begin_and_end_with_an_outage() {
    let text = "0,0,0\n1,8000,2000\n8,0,0\n9,0,0\n";
    let recorded = Recorded::from_csv(text).expect("a recording");
    let trace = recorded.trace("outages", &Conditions::default());
    for contender in Contender::ALL {
        let figures = run(&trace, contender, Signals::Echo, 1, &mut |_| {});
        assert!(
            figures.delivered.download > Bytes(1_000_000),
            "{}",
            contender.name()
        );
        assert!(
            figures.delay_p95 < Nanos::from_millis(20_000),
            "{}",
            contender.name()
        );
    }
}

/// A line that fades at every moment, as radio does, around a mean that wanders.
fn fading_line(seed: u64) -> String {
    let mut random = seeded(seed);
    let mut between = |low: u64, high: u64| low + (random.next_u64() >> 16) % (high - low + 1);
    let (mut download, mut upload) = (12_000, 3000);
    let mut text = String::new();
    for period in 0..2000 {
        if period % 25 == 0 {
            download = (download * between(75, 133) / 100).clamp(3000, 40_000);
            upload = (upload * between(75, 133) / 100).clamp(800, 10_000);
        }
        let time = f64::from(period) * 0.04;
        let fading = [between(20, 180), between(20, 180)];
        text += &format!(
            "{time:.2},{},{}\n",
            download * fading[0] / 100,
            upload * fading[1] / 100
        );
    }
    text
}

/// Single runs differ by more than the controllers do, so the means of several lines are compared. With one-way delays both controllers
/// are about equal on such lines: ours has less delay and fewer bytes.
#[test]
fn fading_lines_are_served_with_less_delay_than_cake_autorate_and_about_its_bytes() {
    const LINES: u64 = 4;
    for signals in [Signals::Echo, Signals::OneWay, Signals::Tcp] {
        let [ours, theirs] = [Contender::Sqm, Contender::CakeAutorate].map(|contender| {
            let runs = (1..=LINES).map(|seed| {
                let recorded = Recorded::from_csv(&fading_line(seed)).expect("a recording");
                let trace = recorded.trace("fading", &Conditions::default());
                run(&trace, contender, signals, seed, &mut |_| {})
            });
            runs.fold((0.0, 0.0), |(above, utility), run| {
                (above + run.above_30_ms_percent, utility + run.utility())
            })
        });
        assert!(ours.0 < theirs.0, "{signals:?}: {ours:?} {theirs:?}");
        let worse_by = if signals == Signals::OneWay { 0.1 } else { 0.0 };
        assert!(
            ours.1 > theirs.1 - worse_by * LINES as f64,
            "{signals:?}: {ours:?} {theirs:?}"
        );
    }
}

fn lines() -> impl Strategy<Value = String> {
    let number = prop_oneof!["-?[0-9]{1,12}(\\.[0-9]{1,4})?", "[0-9]{1,3}", "nan|inf|1e300|-0"];
    let line = prop_oneof![
        prop::collection::vec(number, 1..5).prop_map(|numbers| numbers.join(",")),
        "\\PC{0,20}",
        "#.{0,5}",
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in lines(), other in lines()) {
        let recorded = [Recorded::from_csv(&text), mahimahi(&text, &other)];
        for recorded in recorded.into_iter().flatten() {
            let trace = recorded.trace("any", &Conditions::default());
            prop_assert!(trace.bounds.download.min > Some(Rate::from_bits_per_sec(0)));
        }
        let _ = text.parse::<LoadCycle>();
    }
}
