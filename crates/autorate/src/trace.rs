//! The log ("trace") of a controller: its samples and decisions as lines of comma-separated values, to be read, drawn and replayed.
//!
//! Each line is an [`Entry`]: the time on the wall clock and on the controller's clock, the rate, throughput and reason of both
//! directions, and in the last column all steps since the line before with all samples that the controller received. From these,
//! [`replay`] makes the same decisions again, bit for bit, or those of another controller.
//!
//! Times are in microseconds, with three decimals where that is not exact. An age says how long before another moment something was.
//!
//! | Word | Meaning |
//! | --- | --- |
//! | `begin@AGE:PROGRAM:MIN:BASE:MAX:MIN:BASE:MAX` | a controller starts, `AGE` before the line, with these bounds in bits per second, first those of the download; `-` where there is none |
//! | followed by `:d20=RATE`, `:u20=RATE` | the usual capacity of the download and of the upload at hour 20 |
//! | `resume@AGE:BEFORE:` and the rest as `begin` | the same controller goes on, but the line before this one, `BEFORE` ago, is in another file or lost |
//! | `step@AGE` | the controller decides, `AGE` before the line; the words up to the next `step` are its samples, with their ages before the step |
//! | `echo@AGE:REFLECTOR:RTT`, or `…:RTT:SENT` | [`Signal::Echo`]; `SENT` is the age of the probe when the answer arrived, if that is not the round trip |
//! | `oneway@AGE:REFLECTOR:SENT:INGRESS:EGRESS` | [`Signal::OneWay`], with the delays of the download and of the upload |
//! | `waiting@AGE:REFLECTOR:SENT`, `lost@AGE:REFLECTOR` | [`Signal::Waiting`], [`Signal::Lost`] |
//! | `flow@AGE:FLOW:SENT:INGRESS[:EGRESS]` | [`Signal::Flow`] |
//! | `down@AGE:BYTES:SPAN`, `up@AGE:BYTES:SPAN` | [`Signal::Traffic`] |
//! | `bytes@AGE:DOWN:UP:SPAN` | [`Signal::Traffic`] of both directions |
//! | `hour@AGE:HOUR` | [`Signal::Hour`] |
//!
//! `@AGE` is left out where it is zero. The column is in quotation marks, so that a truncated line is recognised.

pub mod replay;
mod sample_codec;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sample_codec::{Micros, Token, micros, number};

#[cfg(doc)]
use crate::Signal;
use crate::{Bounds, CapacityByHour, Choice, Decision, Probes, Reason, Sample};
use sqm_core::direction::{Direction, PerDirection};

use sqm_core::units::{Instant, Nanos, Rate};

/// The program that writes logs: its version, and that of the controller. The latter changes when the controller may decide otherwise on
/// the same samples. Controller 1 wrote no version of its own.
pub const PROGRAM: &str = concat!("sqm-", env!("CARGO_PKG_VERSION"), "+controller-4");
/// The first line of a log. Each version of the format has its own.
pub const HEADER: &str = "unix_ms,monotonic_us,probe_interval_us,download_bits_per_sec,download_load_bits_per_sec,download_reason,\
                        upload_bits_per_sec,upload_load_bits_per_sec,upload_reason,samples";
const COLUMNS: usize = 10;
/// The most steps and samples that a line may have. A choice: the daemon writes less than a tenth of it.
const MOST_WORDS: usize = 4096;

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// The controller's clock at the last step.
    pub at: Instant,
    /// The decision at the last step.
    pub decision: Decision,
    /// The rate of the traffic.
    pub throughput: PerDirection<Rate>,
    /// How the controller started, where that does not follow from the line before.
    pub start: Option<Start>,
    /// The steps since the line before, at least one.
    pub steps: Vec<Step>,
}

/// The time of a decision, and its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The `now` of the step.
    pub at: Instant,
    /// The samples since the step before.
    pub samples: Vec<Sample>,
}

/// A controller starts or resumes with this line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// When it started or resumed.
    pub at: Instant,
    /// If it resumes: the time of the line before this one, which is in another file or lost.
    pub resumes: Option<Instant>,
    /// Its configuration.
    pub config: Box<ControllerConfig>,
}

/// The configuration that a controller starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Name and version of the program: letters, digits, `.`, `-` and `+`.
    pub program: String,
    /// The rates that the user allows.
    pub bounds: PerDirection<Bounds>,
    /// The capacities that an earlier controller learned.
    pub learned: PerDirection<CapacityByHour>,
}

/// Why a line was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The line has this number of columns.
    Columns(usize),
    /// This column, counted from one, has an invalid value.
    Column(usize, String),
    /// The column of samples does not begin and end with a quotation mark: the line is truncated.
    Open,
    /// This word among the samples does not belong to this version of the format.
    Token(String),
    /// There is a sample before the first step, or no step at all.
    NoStep,
    /// The line has more words than a log ever has.
    TooLong,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns(count) => write!(f, "{count} columns instead of {COLUMNS}"),
            Self::Column(index, text) => {
                let name = HEADER.split(',').nth(index - 1).unwrap_or_default();
                write!(f, "column {index}: {text:?} is not a valid {name}")
            }
            Self::Open => write!(f, "column {COLUMNS} is incomplete"),
            Self::Token(word) => write!(f, "column {COLUMNS}: {word:?} is not a sample of this version"),
            Self::NoStep => write!(f, "column {COLUMNS} does not begin with a step"),
            Self::TooLong => write!(f, "more than {MOST_WORDS} samples"),
        }
    }
}

impl Entry {
    /// Parses a line without its line break.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        let columns: Vec<&str> = line.splitn(COLUMNS + 1, ',').collect();
        let [unix, at, probes, download @ .., samples] = &columns[..] else {
            return Err(ParseError::Columns(columns.len()));
        };
        let [rate, load, why, upload @ ..] = download else {
            return Err(ParseError::Columns(columns.len()));
        };
        let [upload_rate, upload_load, upload_why] = upload else {
            return Err(ParseError::Columns(columns.len()));
        };
        let wrong = |index: usize| move || ParseError::Column(index, excerpt(columns_at(line, index)));
        let rate_of = |index: usize, text: &str| {
            let rate = number(text).map(Rate::from_bits_per_sec);
            rate.ok_or_else(wrong(index))
        };
        let reason_of = |index: usize, text: &str| sample_codec::reason(text).ok_or_else(wrong(index));
        let at = Instant(micros(at).ok_or_else(wrong(2))?);
        let quoted = samples.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let (start, steps) = sample_codec::steps(quoted.ok_or(ParseError::Open)?, at)?;
        Ok(Self {
            unix_ms: number(unix).ok_or_else(wrong(1))?,
            at,
            decision: Decision {
                probes: match micros(probes).ok_or_else(wrong(3))? {
                    0 => Probes::Off,
                    gap => Probes::Every(Nanos(gap)),
                },
                rates: PerDirection {
                    download: Choice {
                        rate: rate_of(4, rate)?,
                        reason: reason_of(6, why)?,
                    },
                    upload: Choice {
                        rate: rate_of(7, upload_rate)?,
                        reason: reason_of(9, upload_why)?,
                    },
                },
            },
            throughput: PerDirection {
                download: rate_of(5, load)?,
                upload: rate_of(8, upload_load)?,
            },
            start,
            steps,
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = match self.decision.probes {
            Probes::Off => 0,
            Probes::Every(Nanos(gap)) => gap,
        };
        write!(f, "{},{},{}", self.unix_ms, Micros(self.at.0), Micros(gap))?;
        for direction in Direction::BOTH {
            let Choice { rate, reason } = self.decision.rates[direction];
            let load = self.throughput[direction].bits_per_sec();
            write!(f, ",{},{load},{}", rate.bits_per_sec(), ReasonWord(reason))?;
        }
        f.write_str(",\"")?;
        let mut gap = "";
        if let Some(start) = &self.start {
            write!(f, "{}", Token::Start(start, self.at))?;
            gap = " ";
        }
        for step in &self.steps {
            write!(f, "{gap}{}", Token::Step(step, self.at))?;
            gap = " ";
        }
        f.write_str("\"")
    }
}

/// Displays a reason as the word that logs and other programs use. It does not change when the text for people does.
#[derive(Clone, Copy, Debug)]
pub struct ReasonWord(pub Reason);

impl fmt::Display for ReasonWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(reason) = self;
        let (word, delay) = sample_codec::of_reason(*reason);
        f.write_str(word)?;
        delay.map_or(Ok(()), |Nanos(delay)| write!(f, ":{}", Micros(delay)))
    }
}

fn columns_at(line: &str, index: usize) -> &str {
    line.split(',').nth(index - 1).unwrap_or_default()
}

/// The beginning of a text, for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::Signal;
    use sqm_core::units::Bytes;

    fn signal() -> impl Strategy<Value = Signal> {
        let sent = || any::<u64>().prop_map(Instant);
        let nanos = || any::<u64>().prop_map(Nanos);
        prop_oneof![
            (any::<u16>(), sent(), nanos()).prop_map(|(reflector, sent, rtt)| Signal::Echo {
                reflector,
                sent,
                rtt
            }),
            (any::<u16>(), sent(), any::<i64>(), any::<i64>()).prop_map(
                |(reflector, sent, download, upload)| Signal::OneWay {
                    reflector,
                    sent,
                    download,
                    upload
                }
            ),
            (any::<u16>(), sent()).prop_map(|(reflector, sent)| Signal::Waiting { reflector, sent }),
            any::<u16>().prop_map(|reflector| Signal::Lost { reflector }),
            (any::<u64>(), sent(), any::<i64>(), any::<Option<i64>>()).prop_map(
                |(flow, sent, download, upload)| Signal::Flow {
                    flow,
                    sent,
                    download,
                    upload,
                }
            ),
            (any::<bool>(), any::<u64>(), 0..3_u64).prop_map(|(down, bytes, span)| Signal::Traffic {
                direction: Direction::BOTH[usize::from(down)],
                bytes: Bytes(bytes),
                span: Nanos(span),
            }),
            (0..24_u8).prop_map(Signal::Hour),
        ]
    }

    fn reason() -> impl Strategy<Value = Reason> {
        let delay = || any::<u64>().prop_map(Nanos);
        prop_oneof![
            delay().prop_map(|delay| Reason::SmallQueue { delay }),
            delay().prop_map(|delay| Reason::Bufferbloat { delay }),
            delay().prop_map(|delay| Reason::Draining { delay }),
            delay().prop_map(|by| Reason::PathChanged { by }),
            prop::sample::select(alloc::vec![
                Reason::Start,
                Reason::Unloaded,
                Reason::SlowStartGuard,
                Reason::Steady,
                Reason::Grow,
                Reason::SignalsLost,
                Reason::Decay,
                Reason::Learned,
                Reason::OtherDirectionDropped,
            ]),
        ]
    }

    fn both<T: Clone + fmt::Debug>(
        of: impl Strategy<Value = T> + Clone,
    ) -> impl Strategy<Value = PerDirection<T>> {
        (of.clone(), of).prop_map(|(download, upload)| PerDirection { download, upload })
    }

    fn rate() -> impl Strategy<Value = Rate> + Clone {
        any::<u64>().prop_map(Rate::from_bits_per_sec)
    }

    fn start() -> impl Strategy<Value = Start> {
        let some = || prop::option::of(rate());
        let bounds = (some(), some(), some()).prop_map(|(min, base, max)| Bounds { min, base, max });
        let learned = prop::collection::vec(some(), 24).prop_map(|hours| CapacityByHour {
            hours: hours.try_into().expect("24 of them"),
        });
        let parts = (
            any::<u64>(),
            any::<Option<u64>>(),
            "[a-z0-9.+-]{1,9}",
            both(bounds),
            both(learned),
        );
        parts.prop_map(|(at, resumes, program, bounds, learned)| Start {
            at: Instant(at),
            resumes: resumes.map(Instant),
            config: Box::new(ControllerConfig {
                program,
                bounds,
                learned,
            }),
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        // Half of the samples have the time of the step, and therefore a shorter form.
        let at = |now: u64| prop_oneof![Just(now), any::<u64>()];
        any::<u64>().prop_flat_map(move |now| {
            let sample = (at(now), signal()).prop_map(|(at, signal)| Sample {
                at: Instant(at),
                signal,
            });
            prop::collection::vec(sample, 0..6).prop_map(move |samples| Step {
                at: Instant(now),
                samples,
            })
        })
    }

    fn row() -> impl Strategy<Value = Entry> {
        let choice = (rate(), reason()).prop_map(|(rate, reason)| Choice { rate, reason });
        let choices = (choice, rate(), reason());
        let times = (any::<u64>(), any::<u64>(), any::<u64>());
        let steps = prop::collection::vec(step(), 1..5);
        let parts = (times, choices, both(rate()), prop::option::of(start()), steps);
        parts.prop_map(
            |((unix_ms, at, gap), (download, rate, reason), throughput, start, steps)| Entry {
                unix_ms,
                at: Instant(at),
                decision: Decision {
                    rates: PerDirection {
                        download,
                        upload: Choice { rate, reason },
                    },
                    probes: match gap {
                        0 => Probes::Off,
                        gap => Probes::Every(Nanos(gap)),
                    },
                },
                throughput,
                start,
                steps,
            },
        )
    }

    proptest! {
        #[test]
        fn a_written_line_reads_back(row in row()) {
            prop_assert_eq!(Entry::parse(&row.to_string()), Ok(row));
        }
    }

    #[test]
    fn a_line_contains_the_decision_and_its_samples() {
        let ms = |ms: u64| Instant(ms * 1_000_000);
        let moved = |direction, bytes| Sample {
            at: ms(1000),
            signal: Signal::Traffic {
                direction,
                bytes: Bytes(bytes),
                span: Nanos::from_millis(50),
            },
        };
        let row = Entry {
            unix_ms: 1_700_000_000_000,
            at: ms(1000),
            decision: Decision {
                rates: PerDirection {
                    download: Choice {
                        rate: Rate::from_kbits_per_sec(20_000),
                        reason: Reason::Bufferbloat {
                            delay: Nanos(12_345_678),
                        },
                    },
                    upload: Choice {
                        rate: Rate::from_kbits_per_sec(4000),
                        reason: Reason::Steady,
                    },
                },
                probes: Probes::Every(Nanos::from_millis(50)),
            },
            throughput: PerDirection {
                download: Rate::from_bits_per_sec(17),
                upload: Rate::from_bits_per_sec(18),
            },
            start: None,
            steps: alloc::vec![
                Step {
                    at: ms(990),
                    samples: alloc::vec![Sample {
                        at: Instant(990_031_000),
                        signal: Signal::Echo {
                            reflector: 2,
                            sent: Instant(959_031_000),
                            rtt: Nanos::from_millis(31),
                        },
                    }],
                },
                Step {
                    at: ms(1000),
                    samples: alloc::vec![
                        moved(Direction::Download, 125_000),
                        moved(Direction::Upload, 2500)
                    ],
                },
            ],
        };
        assert_eq!(
            row.to_string(),
            "1700000000000,1000000,50000,20000000,17,bloat:12345.678,4000000,18,steady,\
             \"step@10000 echo@-31:2:31000 step bytes:125000:2500:50000\""
        );
    }

    #[test]
    fn an_invalid_line_is_refused_with_the_place_of_the_error() {
        let column = |index, text: &str| ParseError::Column(index, text.into());
        let word = |word: &str| ParseError::Token(word.into());
        for (line, trouble) in [
            ("", ParseError::Columns(1)),
            (HEADER, column(2, "monotonic_us")),
            ("1,2,0,4,5,grow,7,8,grow", ParseError::Columns(9)),
            ("1,2,0,4,5,grow,7,8,grow,\"step\",", ParseError::Columns(11)),
            ("1,2,0,4,5,grow,7,8,grow,\"step", ParseError::Open),
            ("1,2,0,4,5,grow,7,8,grow,\"", ParseError::Open),
            ("1,2,0,4,5,grow,7,8,grow,", ParseError::Open),
            ("1,2,0,4,5,grow,7,8,grown,\"step\"", column(9, "grown")),
            ("1,2,0,4,5,grow:1,7,8,grow,\"step\"", column(6, "grow:1")),
            ("1,2,0,4,5,bloat,7,8,grow,\"step\"", column(6, "bloat")),
            ("1,2,0,4,-5,grow,7,8,grow,\"step\"", column(5, "-5")),
            ("1,2.5,0,4,5,grow,7,8,grow,\"step\"", column(2, "2.5")),
            ("1,2,0,4,5,grow,7,8,grow,\"\"", ParseError::NoStep),
            ("1,2,0,4,5,grow,7,8,grow,\"hour:1\"", ParseError::NoStep),
            ("1,2,0,4,5,grow,7,8,grow,\"step:1\"", word("step:1")),
            ("1,2,0,4,5,grow,7,8,grow,\"step hour:24\"", word("hour:24")),
            ("1,2,0,4,5,grow,7,8,grow,\"step echo:1\"", word("echo:1")),
            ("1,2,0,4,5,grow,7,8,grow,\"step lost:1:2\"", word("lost:1:2")),
            ("1,2,0,4,5,grow,7,8,grow,\"step step:1\"", word("step:1")),
            (
                "1,2,0,4,5,grow,7,8,grow,\"step begin:x:-:-:-:-:-:-\"",
                word("begin:x:-:-:-:-:-:-"),
            ),
            (
                "1,2,0,4,5,grow,7,8,grow,\"begin:x:-:-:-:-:-:-:d24=1 step\"",
                word("begin:x:-:-:-:-:-:-:d24=1"),
            ),
        ] {
            assert_eq!(Entry::parse(line), Err(trouble), "{line}");
        }
        let long = alloc::format!("1,2,0,4,5,grow,7,8,grow,\"{}\"", "step ".repeat(MOST_WORDS + 1));
        assert_eq!(Entry::parse(&long), Err(ParseError::TooLong));
    }
}
