//! Every setup script on every line. The queues of `sqm start` and those that `tc` sets up from the printed plan are
//! measured one after the other in the same guest, in virtual time, and compared with figures that other tools found
//! for such queues on such lines.
//!
//! A few rows run with all tests; `make nightly` runs all and prints the table.

use std::fmt::Write;

use super::shared::{Figures, home, load, load_to, start, start_by_hand, stop_by_hand, table};
use sqm_lab::line::Buffer;
use sqm_lab::{Clock, Home, Line, home::SERVER_V6};

/// The rates that the queues shape to, and the options that a user sets for the line.
struct Shaped {
    /// Name of the row's line, and name of the lab's line.
    names: (&'static str, &'static str),
    down: u64,
    up: u64,
    options: &'static str,
}

const fn shaped(name: &'static str, line: &'static str, down: u64, up: u64, options: &'static str) -> Shaped {
    Shaped {
        names: (name, line),
        down,
        up,
        options,
    }
}

const ETHERNET: &str = "\toption linklayer 'ethernet'\n\toption overhead '18'\n\toption tcMPU '64'\n";
const VDSL: &str = "\toption linklayer 'ethernet'\n\toption overhead '30'\n\toption tcMPU '64'\n";
const ATM: &str = "\toption linklayer 'atm'\n\toption overhead '40'\n\toption tcTSIZE '128'\n";

const LINES: [Shaped; 11] = [
    shaped("up1m", "up1m", 13_000, 950, ETHERNET),
    shaped("cable24", "cable24", 24_000, 4400, ETHERNET),
    shaped("boost24", "boost24", 24_000, 4400, ETHERNET),
    shaped("cable180", "cable180", 135_000, 12_000, ETHERNET),
    shaped("cable180f", "cable180", 171_000, 12_000, ETHERNET),
    shaped("cable180u2s", "cable180", 135_000, 12_000, ETHERNET),
    shaped("vdsl80", "vdsl80", 76_000, 19_000, VDSL),
    shaped("adsl8", "adsl8", 7600, 760, ATM),
    shaped("asym100", "asym100", 90_000, 2250, ETHERNET),
    shaped("asym1.5", "asym100", 90_000, 1400, ETHERNET),
    shaped("fiber1g", "fiber1g", 900_000, 900_000, ETHERNET),
];

impl Shaped {
    fn named(name: &str) -> &'static Self {
        LINES
            .iter()
            .find(|line| line.names.0 == name)
            .unwrap_or_else(|| panic!("no line {name}"))
    }

    /// The lab's line, with the changes for this row.
    fn line(&self) -> Line {
        let mut line = Line::named(self.names.1).expect("a known line");
        match self.names.0 {
            "cable180u2s" => line.up.buffer = Buffer::Millis(2000),
            "asym1.5" => line.up.kbits_per_sec = 1500,
            _ => {}
        }
        line
    }
}

/// Load, line, setup script with options, and the known figures: goodput down and up in Mbit/s, median latency in ms. 0 is
/// unknown.
pub(crate) type Row = (&'static str, &'static str, &'static str, [f64; 3]);

/// Rows that run with all tests.
pub(crate) const QUICK: [Row; 2] = [
    ("rrul", "cable24", "simple", [22.38, 3.60, 67.0]),
    ("rrul", "up1m", "best_of_cake", [11.88, 0.59, 23.3]),
];

#[test]
fn a_few_setup_scripts_perform_as_with_tc() {
    compare(&QUICK);
}

/// A measured row: our queues, and those by `tc`.
struct Measured {
    row: Row,
    ours: Figures,
    by_hand: Figures,
}

impl Measured {
    fn worse(&self) -> Option<String> {
        let (load, line, _, known) = self.row;
        worse(load, line, &self.ours, &self.by_hand, known)
    }
}

/// Number of runs where a single one says little. A choice.
const MANY: usize = 6;

/// Number of runs to average. BBR probes for bandwidth by filling its queue now and then, and small segments leave a
/// slow line time for only a few probes.
fn runs(load: &str) -> usize {
    if matches!(load, "bbr" | "small") { MANY } else { 1 }
}

pub(crate) fn compare(rows: &[Row]) {
    // Two guests at a time, because each uses one core. All rows of a line share a guest.
    let mut lines: Vec<&str> = rows.iter().map(|row| row.1).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(rows.iter().filter(|row| row.1 == *line).count()));
    lines.dedup();
    let queue = std::sync::Mutex::new(lines);
    let measured = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(line) = queue.lock().expect("no panic elsewhere").pop() else {
                        break;
                    };
                    let shaped = Shaped::named(line);
                    let home = home(Clock::Virtual, &shaped.line());
                    for row in rows.iter().filter(|row| row.1 == line) {
                        let mut row = measure(&home, shaped, *row, runs(row.0));
                        // One run in several dozen has a standing queue throughout. Several runs tell chance from a
                        // fault.
                        if runs(row.row.0) == 1 && row.worse().is_some() {
                            row = measure(&home, shaped, row.row, MANY);
                        }
                        // Show progress during a long run.
                        println!("{:?} by tc {:?} {:?}", row.ours, row.by_hand, row.row);
                        measured.lock().expect("no panic elsewhere").push(row);
                    }
                }
            });
        }
    });
    let mut measured = measured.into_inner().expect("no panic elsewhere");
    measured.sort_by_key(|m| rows.iter().position(|row| *row == m.row));
    assert_eq!(measured.len(), rows.len(), "every row is measured");
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for one in measured {
        let (load, line, setup, _) = one.row;
        let name = format!("{load} {line} {setup}");
        if let Some(what) = one.worse() {
            wrong.push(format!("{name}: {what}"));
        }
        all.push((name, one.ours));
        all.push(("  by tc".to_owned(), one.by_hand));
    }
    println!("{}", table(&all));
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), table(&all));
}

/// Reports the figures in which our queues are worse than those by `tc`, or than the known ones.
fn worse(
    load: &str,
    line: &str,
    ours: &Figures,
    by_hand: &Figures,
    [down, up, median]: [f64; 3],
) -> Option<String> {
    // Two runs with the same queues differ by this much: on a slow line, a single packet takes a large part of the
    // time.
    let (latency, goodput) = match line {
        "up1m" | "adsl8" => (0.15, 0.12),
        "asym100" | "asym1.5" => (0.08, 0.06),
        _ => (0.03, 0.03),
    };
    // The known figures were measured with other tools. The tolerances are those of `lab/truth.rs`.
    let (known_latency, known_goodput) = match line {
        "up1m" | "adsl8" => (0.25, 0.15),
        "asym100" | "asym1.5" => (0.10, 0.15),
        _ => (0.05, 0.03),
    };
    let mut wrong = String::new();
    let mut check = |good: bool, what: &str, found: f64, other: f64, whose: &str| {
        if !good {
            write!(wrong, "{what} {found:.2}, {whose} {other:.2}; ").expect("a String takes everything");
        }
    };
    for (what, found, other) in [
        ("median", ours.median_ms, by_hand.median_ms),
        ("p95", ours.p95_ms, by_hand.p95_ms),
    ] {
        // With BBR the 95th percentiles of two runs differ by half.
        let latency = if load == "bbr" && what == "p95" {
            0.3
        } else {
            latency
        };
        check(
            found <= other * (1.0 + latency) + 1.0,
            what,
            found,
            other,
            "by tc",
        );
    }
    for (what, found, other) in [("down", ours.down, by_hand.down), ("up", ours.up, by_hand.up)] {
        check(
            found >= other * (1.0 - goodput) - 0.01,
            what,
            found,
            other,
            "by tc",
        );
    }
    if median > 0.0 {
        let most = median * (1.0 + known_latency) + 0.5;
        check(ours.median_ms <= most, "median", ours.median_ms, median, "known");
    }
    for (what, found, known) in [("down", ours.down, down), ("up", ours.up, up)] {
        check(
            found >= known * (1.0 - known_goodput) - 0.01,
            what,
            found,
            known,
            "known",
        );
    }
    (!wrong.is_empty()).then_some(wrong)
}

fn measure(home: &Home, shaped: &Shaped, row: Row, runs: usize) -> Measured {
    let (kind, _, setup, _) = row;
    let (script, extra) = setup.split_once(';').unwrap_or((setup, ""));
    let mut options = shaped.options.to_owned();
    // Keep DSCPs of arriving packets, as the known figures were measured with them.
    if matches!(script, "simple" | "layer_cake") {
        options += "\toption squash_ingress '0'\n";
    }
    if let Some((name, value)) = extra.split_once(' ') {
        writeln!(options, "\toption {name} '{value}'").expect("a String takes everything");
    }
    let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        start(home, script, shaped.down, shaped.up, &options);
        ours.push(under(home, kind));
        home.run_ok("router", &["sqm", "stop"]).expect("sqm stop");
        start_by_hand(home);
        by_hand.push(under(home, kind));
        stop_by_hand(home);
    }
    Measured {
        row,
        ours: Figures::mean(&ours),
        by_hand: Figures::mean(&by_hand),
    }
}

/// Measures the figures under a load.
fn under(home: &Home, kind: &str) -> Figures {
    let flows = |down: &'static str, up: &'static str| -> Vec<&'static str> {
        // One series of probes: three would take 2 % of 1 Mbit/s.
        vec!["--test", "rrul_be_nflows", "--down", down, "--up", up]
    };
    let mut words = match kind {
        "rrul" | "1g" => flows("4", "4"),
        "up1" => flows("0", "1"),
        "up4" => flows("0", "4"),
        "dn1" => flows("1", "0"),
        "dn4" => flows("4", "0"),
        "dn4up1" => flows("4", "1"),
        "many" => flows("32", "0"),
        "bbr" => [flows("4", "4"), vec!["--congestion", "bbr"]].concat(),
        "small" => [flows("4", "4"), vec!["--mss", "216"]].concat(),
        "v6" => [flows("4", "4"), vec!["-6"]].concat(),
        "marked" => vec!["--test", "rrul"],
        other => panic!("no load {other}"),
    };
    words.extend(match kind {
        "1g" => ["--settle", "3", "--duration", "8"],
        _ => ["--settle", "7", "--duration", "25"],
    });
    if kind == "v6" {
        return load_to(home, SERVER_V6, &words);
    }
    load(home, &words)
}
