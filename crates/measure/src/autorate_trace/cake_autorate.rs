//! The log of cake-autorate (`/var/log/cake-autorate.*.log`) as the lines of our own log, so that the same figures, pictures and replay
//! apply to it. Pure.
//!
//! A log of cake-autorate has lines of several kinds, with `; ` between the columns. The first column is the kind. A header line
//! (`DATA_HEADER; LOG_DATETIME; …`) names the columns of its kind, and differs between the versions of cake-autorate:
//!
//! - `DATA`: an answer of a reflector, with the delay of each direction, the traffic, the load condition and the shaper rates.
//! - `LOAD`: the traffic and the shaper rates, five times a second.
//!
//! All other kinds (`SUMMARY`, `REFLECTOR`, `CPU`, messages) repeat these or say nothing about the line, and are left out.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use sqm_autorate::trace::{ControllerConfig, Entry, Start, Step};
use sqm_autorate::{Bounds, Choice, Decision, Probes, Reason, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

use super::reader::{ReadError, TruncatedLine};
use crate::foreign::{self, MAX_REASON};

/// The name of the program in the configuration of each start.
pub const PROGRAM: &str = "cake-autorate";

/// The columns since version 3.1, for a log whose header lines are missing.
const DATA_COLUMNS: &str = "DATA_HEADER; LOG_DATETIME; LOG_TIMESTAMP; PROC_TIME_US; DL_ACHIEVED_RATE_KBPS; UL_ACHIEVED_RATE_KBPS; \
    DL_LOAD_PERCENT; UL_LOAD_PERCENT; ICMP_TIMESTAMP; REFLECTOR; SEQUENCE; DL_OWD_BASELINE; DL_OWD_US; DL_OWD_DELTA_EWMA_US; \
    DL_OWD_DELTA_US; DL_ADJ_DELAY_THR; UL_OWD_BASELINE; UL_OWD_US; UL_OWD_DELTA_EWMA_US; UL_OWD_DELTA_US; UL_ADJ_DELAY_THR; \
    DL_SUM_DELAYS; DL_AVG_OWD_DELTA_US; DL_ADJ_MAX_ADJUST_UP_THR_US; DL_ADJ_MAX_ADJUST_DOWN_THR_US; UL_SUM_DELAYS; \
    UL_AVG_OWD_DELTA_US; UL_ADJ_MAX_ADJUST_UP_THR_US; UL_ADJ_MAX_ADJUST_DOWN_THR_US; DL_LOAD_CONDITION; UL_LOAD_CONDITION; \
    CAKE_DL_RATE_KBPS; CAKE_UL_RATE_KBPS";
const LOAD_COLUMNS: &str = "LOAD_HEADER; LOG_DATETIME; LOG_TIMESTAMP; PROC_TIME_US; DL_ACHIEVED_RATE_KBPS; UL_ACHIEVED_RATE_KBPS; \
    CAKE_DL_RATE_KBPS; CAKE_UL_RATE_KBPS";

/// Traffic counts for at most this long without another line, nanoseconds. A choice: five intervals of cake-autorate's counters.
const LONGEST_TRAFFIC: Nanos = Nanos::from_millis(1000);
/// The most reflectors of a log. A choice: far above the lists that people configure.
const MOST_REFLECTORS: usize = 1024;

/// Logs with more incomplete lines are refused. cake-autorate writes in blocks, so that one line is cut off where it was stopped. A choice.
const MOST_CUT: usize = 100;
const NO_ROWS: &str = "there are no DATA and no LOAD lines; set output_processing_stats and output_load_stats of cake-autorate to 1";

/// True if a log with this first byte may be one of cake-autorate: its lines begin with a word in capital letters.
pub(super) const fn begins_with(first: u8) -> bool {
    first.is_ascii_uppercase()
}

/// Passes each entry to `take`, with the number of its line. Returns the lines that were cut off.
pub(super) fn read_lines(
    mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>,
    take: &mut dyn FnMut(usize, Entry),
) -> Result<Vec<TruncatedLine>, ReadError> {
    let mut parser = Parser::default();
    let (mut cuts, mut rows) = (Vec::new(), 0_usize);
    for line in 1.. {
        let Some(bytes) = next().map_err(ReadError::Read)? else {
            break;
        };
        // Messages may hold text of any program.
        let text = String::from_utf8_lossy(&bytes);
        match parser.line(text.trim_end()) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                rows += 1;
                take(line, entry);
            }
            Err(Fault::Truncated(reason)) if cuts.len() < MOST_CUT => {
                cuts.push(TruncatedLine { line, reason })
            }
            Err(Fault::Truncated(reason) | Fault::Invalid(reason)) => {
                return Err(ReadError::Line(line, foreign::brief(&reason, MAX_REASON)));
            }
        }
    }
    if rows > 0 {
        return Ok(cuts);
    }
    Err(match cuts.into_iter().next() {
        Some(cut) => ReadError::Line(cut.line, cut.reason),
        None => ReadError::Line(1, NO_ROWS.to_owned()),
    })
}

/// Makes entries of the lines of one log.
#[derive(Debug)]
struct Parser {
    data: Rc<Columns>,
    load: Rc<Columns>,
    /// Traffic is taken from `LOAD` lines as soon as there is one, for `DATA` lines repeat it.
    has_load: bool,
    reflectors: BTreeMap<String, u16>,
    /// The next entry is the first one of a controller.
    starts: bool,
    is_first: bool,
    reasons: PerDirection<Reason>,
    traffic_at: Option<Instant>,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            data: Rc::new(Columns::of(DATA_COLUMNS)),
            load: Rc::new(Columns::of(LOAD_COLUMNS)),
            has_load: false,
            reflectors: BTreeMap::new(),
            starts: false,
            is_first: true,
            reasons: PerDirection {
                download: Reason::Unloaded,
                upload: Reason::Unloaded,
            },
            traffic_at: None,
        }
    }
}

/// A mistake in a line.
#[derive(Debug)]
enum Fault {
    /// It has too few or too many columns: it was cut off while it was written.
    Truncated(String),
    /// A column has no valid value.
    Invalid(String),
}

impl Parser {
    /// The entry of a line, or `None` for a line that says nothing about the line of the user.
    fn line(&mut self, line: &str) -> Result<Option<Entry>, Fault> {
        let kind = line.split(';').next().unwrap_or_default().trim();
        match kind {
            // The first versions had one header.
            "DATA_HEADER" | "HEADER" => self.data = Rc::new(Columns::of(line)),
            "LOAD_HEADER" => self.load = Rc::new(Columns::of(line)),
            "DATA" => return self.entry(&Row::of(line, Rc::clone(&self.data))?, true).map(Some),
            "LOAD" => {
                self.has_load = true;
                return self
                    .entry(&Row::of(line, Rc::clone(&self.load))?, false)
                    .map(Some);
            }
            _ if line.contains("Starting cake-autorate with PID") => self.starts = true,
            _ => {}
        }
        Ok(None)
    }

    fn entry(&mut self, row: &Row<'_>, is_data: bool) -> Result<Entry, Fault> {
        let at = row.time("PROC_TIME_US")?;
        let rates = row.rates(["CAKE_DL_RATE_KBPS", "CAKE_UL_RATE_KBPS"])?;
        let throughput = row.rates(["DL_ACHIEVED_RATE_KBPS", "UL_ACHIEVED_RATE_KBPS"])?;
        let mut samples = Vec::new();
        if is_data {
            samples.extend(self.probe(row, at)?.map(|signal| Sample { at, signal }));
            for (direction, prefix) in [(Direction::Download, "DL"), (Direction::Upload, "UL")] {
                self.reasons[direction] = row.reason(prefix)?;
            }
        }
        if !is_data || !self.has_load {
            samples.extend(self.traffic(at, throughput));
        }
        let start = self.start(at, rates);
        Ok(Entry {
            unix_ms: at.0 / 1_000_000,
            at,
            decision: Decision {
                // The log does not say how often cake-autorate probes.
                probes: Probes::Off,
                rates: PerDirection {
                    download: Choice {
                        rate: rates.download,
                        reason: self.reasons.download,
                    },
                    upload: Choice {
                        rate: rates.upload,
                        reason: self.reasons.upload,
                    },
                },
            },
            throughput,
            start,
            steps: vec![Step { at, samples }],
        })
    }

    /// The start of a controller, if this is its first entry. The log does not hold the bounds of its configuration.
    fn start(&mut self, at: Instant, rates: PerDirection<Rate>) -> Option<Start> {
        let starts = std::mem::take(&mut self.starts);
        let is_first = std::mem::take(&mut self.is_first);
        let bounds = |rate| Bounds {
            base: Some(rate),
            ..Bounds::default()
        };
        (starts || is_first).then(|| Start {
            at,
            // Without the line that says that cake-autorate starts, the log begins in the middle of a run.
            resumes: (!starts).then_some(Instant(0)),
            config: Box::new(ControllerConfig {
                program: PROGRAM.to_owned(),
                bounds: PerDirection {
                    download: bounds(rates.download),
                    upload: bounds(rates.upload),
                },
                ..ControllerConfig::default()
            }),
        })
    }

    fn probe(&mut self, row: &Row<'_>, at: Instant) -> Result<Option<Signal>, Fault> {
        let name = row.text("REFLECTOR")?;
        let reflector = match self.reflectors.get(name) {
            Some(number) => *number,
            None if self.reflectors.len() == MOST_REFLECTORS => {
                return Err(Fault::Invalid(format!("more than {MOST_REFLECTORS} reflectors")));
            }
            None => {
                let number = self.reflectors.len() as u16;
                self.reflectors.insert(name.to_owned(), number);
                number
            }
        };
        // Until version 1 only the round trip was known.
        let (download, upload) = match row.has("RTT_US") {
            true => (row.micros("RTT_US")?, 0),
            false => (row.micros("DL_OWD_US")?, row.micros("UL_OWD_US")?),
        };
        let Ok(rtt @ 1..) = u64::try_from(download.saturating_add(upload)) else {
            // One-way delays by a clock that was just set give no round trip.
            return Ok(None);
        };
        let sent = Instant(at.0.saturating_sub(rtt));
        // cake-autorate halves a round trip of which it does not know the two ways.
        let is_halved = download == upload || row.has("RTT_US");
        Ok(Some(match is_halved {
            true => Signal::Echo {
                reflector,
                sent,
                rtt: Nanos(rtt),
            },
            false => Signal::OneWay {
                reflector,
                sent,
                download,
                upload,
            },
        }))
    }

    /// The traffic since the line before: cake-autorate logs rates, not bytes.
    fn traffic(&mut self, at: Instant, throughput: PerDirection<Rate>) -> Vec<Sample> {
        let before = self.traffic_at.replace(at).filter(|before| *before < at);
        let Some(span) = before.map(|before| Nanos(at.since(before).0.min(LONGEST_TRAFFIC.0))) else {
            return Vec::new();
        };
        let sample = |direction: Direction| {
            let bits = u128::from(throughput[direction].bits_per_sec()) * u128::from(span.0) / 1_000_000_000;
            let bytes = Bytes(u64::try_from(bits / 8).unwrap_or(u64::MAX));
            Sample {
                at,
                signal: Signal::Traffic {
                    direction,
                    bytes,
                    span,
                },
            }
        };
        Direction::BOTH.map(sample).to_vec()
    }
}

/// The columns of one kind of line, by name.
#[derive(Debug)]
struct Columns {
    names: BTreeMap<String, usize>,
    count: usize,
}

impl Columns {
    fn of(header: &str) -> Self {
        let names: Vec<&str> = header.split(';').map(str::trim).collect();
        Self {
            count: names.len(),
            names: (0..).zip(names).map(|(n, name)| (name.to_owned(), n)).collect(),
        }
    }
}

/// A line with the columns of its kind.
struct Row<'a> {
    values: Vec<&'a str>,
    columns: Rc<Columns>,
}

impl<'a> Row<'a> {
    fn of(line: &'a str, columns: Rc<Columns>) -> Result<Self, Fault> {
        let values: Vec<&str> = line.split(';').map(str::trim).collect();
        if values.len() != columns.count {
            let (found, count) = (values.len(), columns.count);
            return Err(Fault::Truncated(format!("{found} columns instead of {count}")));
        }
        Ok(Self { values, columns })
    }

    fn has(&self, name: &str) -> bool {
        self.columns.names.contains_key(name)
    }

    fn text(&self, name: &str) -> Result<&'a str, Fault> {
        let column = self.columns.names.get(name);
        let column = column.ok_or_else(|| Fault::Invalid(format!("its header has no column {name}")))?;
        Ok(self.values[*column])
    }

    fn value<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Fault> {
        let text = self.text(name)?;
        parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Fault::Invalid(format!("{shown:?} is not a valid {name}"))
        })
    }

    /// A time in seconds since 1970. The shell writes the decimal mark of its language.
    fn time(&self, name: &str) -> Result<Instant, Fault> {
        self.value(name, |text| {
            let (seconds, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
            let nanos: u64 = match fraction {
                "" => 0,
                digits if digits.len() <= 9 => format!("{digits:0<9}").parse().ok()?,
                _ => return None,
            };
            let seconds: u64 = seconds.parse().ok()?;
            Some(Instant(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
        })
    }

    fn rates(&self, [download, upload]: [&str; 2]) -> Result<PerDirection<Rate>, Fault> {
        let rate = |name| {
            self.value(name, |text| {
                let kbit: u64 = text.parse().ok()?;
                Some(Rate::from_bits_per_sec(kbit.checked_mul(1000)?))
            })
        };
        Ok(PerDirection {
            download: rate(download)?,
            upload: rate(upload)?,
        })
    }

    /// A delay in nanoseconds.
    fn micros(&self, name: &str) -> Result<i64, Fault> {
        self.value(name, |text| text.parse::<i64>().ok()?.checked_mul(1000))
    }

    /// The load condition of a direction: `dl_high`, and `dl_high_bb` while cake-autorate sees bufferbloat.
    fn reason(&self, prefix: &str) -> Result<Reason, Fault> {
        let condition = self.text(&format!("{prefix}_LOAD_CONDITION"))?;
        if condition.contains("_bb") || condition.contains("_delayed") {
            let delay = [
                format!("{prefix}_AVG_OWD_DELTA_US"),
                format!("{prefix}_OWD_DELTA_US"),
                "RTT_DELTA_US".to_owned(),
            ]
            .iter()
            .find(|name| self.has(name))
            .map_or(Ok(0), |name| self.micros(name))?;
            let delay = Nanos(u64::try_from(delay).unwrap_or(0));
            return Ok(Reason::Bufferbloat { delay });
        }
        Ok(match condition.contains("high") {
            true => Reason::Grow,
            false => Reason::Unloaded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autorate_trace::{Figures, Recording};

    fn read(text: &str) -> Result<(Vec<Entry>, Vec<TruncatedLine>), String> {
        let (mut entries, mut lines) = (Vec::new(), text.split_inclusive('\n'));
        let next = || Ok(lines.next().map(|line| line.as_bytes().to_vec()));
        match read_lines(next, &mut |_, entry| entries.push(entry)) {
            Ok(cuts) => Ok((entries, cuts)),
            Err(ReadError::Line(line, reason)) => Err(format!("{line}: {reason}")),
            Err(ReadError::Read(error)) => panic!("{error}"),
        }
    }

    fn figures(text: &str) -> Figures {
        Recording::of(String::new(), &read(text).expect("a log").0).figures()
    }

    /// A log by the columns of a header: those that a test names have its values, all others are 0.
    fn line(header: &str, values: &[(&str, &str)]) -> String {
        let value = |(n, name): (usize, &str)| match n {
            0 => name.trim_end_matches("_HEADER").replace("HEADER", "DATA"),
            1 => "2026-08-19-14:13:14".to_owned(),
            _ => {
                let named = values.iter().find(|(other, _)| *other == name);
                named.map_or("0", |(_, value)| value).to_owned()
            }
        };
        let columns = header.split("; ").enumerate().map(value);
        columns.collect::<Vec<_>>().join("; ") + "\n"
    }

    fn data(header: &str, at: &str, owd: [&str; 2], condition: &str, rate: &str) -> String {
        line(
            header,
            &[
                ("PROC_TIME_US", at),
                ("DL_ACHIEVED_RATE_KBPS", "16000"),
                ("UL_ACHIEVED_RATE_KBPS", "800"),
                ("REFLECTOR", "192.0.2.1"),
                ("DL_OWD_US", owd[0]),
                ("UL_OWD_US", owd[1]),
                ("RTT_US", owd[0]),
                ("DL_AVG_OWD_DELTA_US", "31000"),
                ("DL_LOAD_CONDITION", condition),
                ("UL_LOAD_CONDITION", "ul_low"),
                ("CAKE_DL_RATE_KBPS", rate),
                ("CAKE_UL_RATE_KBPS", "5000"),
            ],
        )
    }

    fn load(at: &str, achieved: &str, rate: &str) -> String {
        line(
            LOAD_COLUMNS,
            &[
                ("PROC_TIME_US", at),
                ("DL_ACHIEVED_RATE_KBPS", achieved),
                ("UL_ACHIEVED_RATE_KBPS", "800"),
                ("CAKE_DL_RATE_KBPS", rate),
                ("CAKE_UL_RATE_KBPS", "5000"),
            ],
        )
    }

    #[test]
    fn a_log_gives_rates_load_cuts_and_delay() {
        let mut text = format!(
            "SYSLOG; 2026-08-19-14:13:14; 1787148790.000000; Starting cake-autorate with PID: 7 and config: /root/cake-autorate/config.primary.sh\n\
             {DATA_COLUMNS}\n{LOAD_COLUMNS}\nSUMMARY_HEADER; LOG_DATETIME\n"
        );
        for n in 0..10 {
            let second = 1_787_148_800 + n;
            let (condition, owd, rate) = match n {
                5 | 6 => ("dl_high_bb", ["45000", "45000"], "10000"),
                _ => ("dl_high", ["10000", "10000"], "20000"),
            };
            text += &load(&format!("{second}.000001"), "16000", rate);
            text += &data(DATA_COLUMNS, &format!("{second}.500000"), owd, condition, rate);
            text += "SUMMARY; 2026-08-19-14:13:14; 1; 2\nDEBUG; 2026-08-19-14:13:14; 1; any; text\nfping: \u{fffd}\n";
        }
        let figures = figures(&text);
        assert_eq!((figures.runs, figures.start_unix_ms), (1, 1_787_148_800_000));
        let down = figures.download.expect("shaped");
        assert_eq!(
            (down.rate_min_mbit, down.rate_median_mbit, down.cuts),
            (10.0, 20.0, 1)
        );
        assert!(
            (down.load_mean_mbit - 16.0).abs() < 0.001,
            "{}",
            down.load_mean_mbit
        );
        let up = figures.upload.expect("shaped");
        assert_eq!((up.rate_max_mbit, up.cuts), (5.0, 0));
        let delay = figures.delay;
        assert_eq!((delay.probes, delay.least_rtt_ms), (10, Some(20.0)));
        assert_eq!(
            (delay.added_median_ms, delay.added_p95_ms),
            (Some(0.0), Some(70.0))
        );
        assert_eq!(delay.lost, None, "cake-autorate logs answers only");
    }

    #[test]
    fn columns_are_found_by_the_names_in_the_header() {
        // Version 1 knew the round trip only, and had one header. Its times have the decimal mark of the shell's language.
        let old = "HEADER; LOG_DATETIME; LOG_TIMESTAMP; PROC_TIME_US; DL_ACHIEVED_RATE_KBPS; UL_ACHIEVED_RATE_KBPS; DL_LOAD_PERCENT; \
             UL_LOAD_PERCENT; RTT_TIMESTAMP; REFLECTOR; SEQUENCE; RTT_BASELINE; RTT_US; RTT_DELTA_US; ADJ_DELAY_THR; SUM_DELAYS; \
             DL_LOAD_CONDITION; UL_LOAD_CONDITION; CAKE_DL_RATE_KBPS; CAKE_UL_RATE_KBPS";
        let text = format!(
            "{old}\n{}{}",
            data(old, "1660653508,25", ["23000", ""], "dl_high", "20000"),
            data(old, "1660653509,25", ["25000", ""], "dl_high", "20000"),
        );
        let figures = figures(&text);
        assert_eq!(figures.seconds, 1.0);
        assert_eq!(figures.delay.least_rtt_ms, Some(23.0));
        // Without LOAD lines, DATA lines show the traffic.
        assert_eq!(figures.download.expect("shaped").load_mean_mbit, 16.0);
        // A log without its header lines is one of the present version.
        let (entries, _) = read(&data(DATA_COLUMNS, "5.0", ["9000", "2000"], "dl_idle", "1")).expect("a log");
        let signals: Vec<Signal> = entries[0].steps[0]
            .samples
            .iter()
            .map(|sample| sample.signal)
            .collect();
        assert!(
            matches!(
                signals[..],
                [Signal::OneWay {
                    download: 9_000_000,
                    upload: 2_000_000,
                    ..
                }]
            ),
            "{signals:?}"
        );
    }

    #[test]
    fn a_line_that_was_cut_off_is_skipped_and_a_wrong_one_is_refused() {
        let whole = data(DATA_COLUMNS, "1.0", ["1", "1"], "dl_idle", "1");
        let (entries, cuts) = read(&format!("{whole}{}", &whole[..60])).expect("a log");
        assert_eq!((entries.len(), cuts.len(), cuts[0].line), (1, 1, 2));
        let wrong = data(DATA_COLUMNS, "1.0", ["1", "x1"], "dl_idle", "1");
        assert_eq!(
            read(&format!("{whole}{wrong}")).err().as_deref(),
            Some("2: \"x1\" is not a valid UL_OWD_US")
        );
        let rates = data(DATA_COLUMNS, "1.0", ["1", "1"], "dl_idle", "99999999999999999999");
        assert!(read(&rates).is_err_and(|error| error.contains("CAKE_DL_RATE_KBPS")));
        let header = format!("{}\nDATA; 1; 2; 3\n", "DATA_HEADER; A; B; C");
        assert!(read(&header).is_err_and(|error| error.contains("no column PROC_TIME_US")));
        let nothing = "DATA_HEADER; LOG_DATETIME\nSUMMARY; 1; 2\n";
        assert!(read(nothing).is_err_and(|error| error.contains("output_processing_stats")));
        let cut = "DATA; 1; 2\n".repeat(MOST_CUT + 1);
        assert!(read(&cut).is_err_and(|error| error.starts_with("101: 3 columns instead of 33")));
    }
}
