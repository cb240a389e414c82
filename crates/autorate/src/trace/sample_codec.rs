//! The words of the last column: steps and samples as text, both ways. The parent module has the grammar.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::Split;

use crate::{Bounds, CapacityByHour, Reason, Sample, Signal};
use sqm_core::direction::{Direction, PerDirection};

use super::{ControllerConfig, MOST_WORDS, ParseError, Start, Step, excerpt};
use sqm_core::units::{Bytes, Instant, Nanos, Rate};

/// Displays a start or a step. Ages count back from the given time, which is that of the line.
pub(crate) enum Token<'a> {
    Start(&'a Start, Instant),
    Step(&'a Step, Instant),
}

/// Displays nanoseconds as microseconds, with three decimals where that is not exact.
pub(crate) struct Micros(pub(crate) u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nanos) = self;
        write!(f, "{}", nanos / 1000)?;
        match nanos % 1000 {
            0 => Ok(()),
            rest => write!(f, ".{rest:03}"),
        }
    }
}

/// Displays signed nanoseconds as [`Micros`].
struct Signed(i64);

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", Micros(self.0.unsigned_abs()))
    }
}

/// Parses microseconds. Returns nanoseconds.
pub(crate) fn micros(text: &str) -> Option<u64> {
    let (micros, rest) = match text.split_once('.') {
        Some((micros, rest)) if rest.len() == 3 => (micros, number(rest)?),
        Some(_) => return None,
        None => (text, 0),
    };
    number::<u64>(micros)?.checked_mul(1000)?.checked_add(rest)
}

fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(text) => 0_i64.checked_sub_unsigned(micros(text)?),
        None => i64::try_from(micros(text)?).ok(),
    }
}

/// Parses a number of digits alone, without a sign.
pub(crate) fn number<N: core::str::FromStr>(text: &str) -> Option<N> {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| text.parse().ok())?
}

/// How long `at` was before `now`, nanoseconds; negative if it was after.
const fn age(now: Instant, at: Instant) -> i64 {
    now.0.wrapping_sub(at.0) as i64
}

const fn before(now: Instant, age: i64) -> Instant {
    Instant(now.0.wrapping_sub(age as u64))
}

/// Displays an age as `@AGE`, and an age of zero as nothing.
struct At(i64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            age => write!(f, "@{}", Signed(age)),
        }
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(start, now) => write_start(f, start, *now),
            Self::Step(step, now) => write_step(f, step, *now),
        }
    }
}

fn write_start(f: &mut fmt::Formatter<'_>, start: &Start, now: Instant) -> fmt::Result {
    let ControllerConfig {
        program,
        bounds,
        learned,
    } = &*start.config;
    let at = At(age(now, start.at));
    match start.resumes {
        None => write!(f, "begin{at}")?,
        Some(last) => write!(f, "resume{at}:{}", Signed(age(now, last)))?,
    }
    write!(f, ":{program}")?;
    for direction in Direction::BOTH {
        let Bounds { min, base, max } = bounds[direction];
        for rate in [min, base, max] {
            match rate {
                Some(rate) => write!(f, ":{}", rate.bits_per_sec())?,
                None => f.write_str(":-")?,
            }
        }
    }
    for (way, learned) in [('d', learned.download), ('u', learned.upload)] {
        for (hour, rate) in learned.hours.iter().enumerate() {
            if let Some(rate) = rate {
                write!(f, ":{way}{hour}={}", rate.bits_per_sec())?;
            }
        }
    }
    Ok(())
}

fn write_step(f: &mut fmt::Formatter<'_>, step: &Step, now: Instant) -> fmt::Result {
    write!(f, "step{}", At(age(now, step.at)))?;
    let mut samples = &step.samples[..];
    while let [sample, rest @ ..] = samples {
        f.write_str(" ")?;
        if let Some(rest) = write_both(f, samples, step.at)? {
            samples = rest;
        } else {
            write_sample(f, *sample, step.at)?;
            samples = rest;
        }
    }
    Ok(())
}

/// Writes the first two samples as one word if they are the traffic of both directions in the same period, as the daemon reads a
/// device's counters. Returns the other samples then.
fn write_both<'a>(
    f: &mut fmt::Formatter<'_>,
    samples: &'a [Sample],
    now: Instant,
) -> Result<Option<&'a [Sample]>, fmt::Error> {
    let traffic = |sample: &Sample, wanted| match sample.signal {
        Signal::Traffic {
            direction,
            bytes,
            span,
        } if direction == wanted => Some((sample.at, bytes.0, span)),
        _ => None,
    };
    let [down, up, rest @ ..] = samples else {
        return Ok(None);
    };
    match (traffic(down, Direction::Download), traffic(up, Direction::Upload)) {
        (Some((at, down, span)), Some((at_too, up, span_too))) if (at, span) == (at_too, span_too) => {
            write!(f, "bytes{}:{down}:{up}:{}", At(age(now, at)), Micros(span.0))?;
            Ok(Some(rest))
        }
        _ => Ok(None),
    }
}

fn write_sample(f: &mut fmt::Formatter<'_>, Sample { at, signal }: Sample, now: Instant) -> fmt::Result {
    let when = At(age(now, at));
    let ago = |sent: Instant| Signed(age(at, sent));
    match signal {
        Signal::Echo { reflector, sent, rtt } => {
            write!(f, "echo{when}:{reflector}:{}", Micros(rtt.0))?;
            match age(at, sent) {
                age if age as u64 == rtt.0 => Ok(()),
                age => write!(f, ":{}", Signed(age)),
            }
        }
        Signal::OneWay {
            reflector,
            sent,
            download,
            upload,
        } => {
            let (download, upload) = (Signed(download), Signed(upload));
            write!(f, "oneway{when}:{reflector}:{}:{download}:{upload}", ago(sent))
        }
        Signal::Waiting { reflector, sent } => write!(f, "waiting{when}:{reflector}:{}", ago(sent)),
        Signal::Lost { reflector } => write!(f, "lost{when}:{reflector}"),
        Signal::Flow {
            flow,
            sent,
            download,
            upload,
        } => {
            write!(f, "flow{when}:{flow}:{}:{}", ago(sent), Signed(download))?;
            match upload {
                Some(upload) => write!(f, ":{}", Signed(upload)),
                None => Ok(()),
            }
        }
        Signal::Traffic {
            direction,
            bytes,
            span,
        } => {
            let way = match direction {
                Direction::Download => "down",
                Direction::Upload => "up",
            };
            write!(f, "{way}{when}:{}:{}", bytes.0, Micros(span.0))
        }
        Signal::Hour(hour) => write!(f, "hour{when}:{hour}"),
    }
}

/// Parses the last column of a line whose time is `now`.
pub(crate) fn steps(text: &str, now: Instant) -> Result<(Option<Start>, Vec<Step>), ParseError> {
    let (mut start, mut steps) = (None, Vec::<Step>::new());
    let words = text.split(' ').filter(|word| !word.is_empty());
    for (count, word) in words.enumerate() {
        if count >= MOST_WORDS {
            return Err(ParseError::TooLong);
        }
        let wrong = || ParseError::Token(excerpt(word));
        let mut parts = word.split(':');
        let head = parts.next().ok_or_else(wrong)?;
        let (kind, age) = match head.split_once('@') {
            Some((kind, age)) => (kind, signed(age).ok_or_else(wrong)?),
            None => (head, 0),
        };
        match (kind, steps.last_mut()) {
            ("begin" | "resume", None) if start.is_none() => {
                let read = read_start(kind == "resume", before(now, age), now, &mut parts);
                start = Some(read.ok_or_else(wrong)?);
            }
            ("step", _) => steps.push(Step {
                at: before(now, age),
                samples: Vec::new(),
            }),
            (_, Some(step)) => {
                read_samples(kind, before(step.at, age), &mut parts, &mut step.samples).ok_or_else(wrong)?;
            }
            (_, None) => return Err(ParseError::NoStep),
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
    }
    if steps.is_empty() {
        return Err(ParseError::NoStep);
    }
    Ok((start, steps))
}

fn read_start(resumes: bool, at: Instant, now: Instant, parts: &mut Split<'_, char>) -> Option<Start> {
    let resumes = match resumes {
        true => Some(before(now, signed(parts.next()?)?)),
        false => None,
    };
    let program = parts.next().filter(|program| is_name(program))?;
    let mut bounds = || {
        Some(Bounds {
            min: rate(parts.next()?)?,
            base: rate(parts.next()?)?,
            max: rate(parts.next()?)?,
        })
    };
    let bounds = PerDirection {
        download: bounds()?,
        upload: bounds()?,
    };
    let mut learned = PerDirection::<CapacityByHour>::default();
    for part in parts {
        let (place, rate) = part.split_once('=')?;
        let (direction, hour) = match place.strip_prefix('d') {
            Some(hour) => (Direction::Download, hour),
            None => (Direction::Upload, place.strip_prefix('u')?),
        };
        let hour = learned[direction].hours.get_mut(number::<usize>(hour)?)?;
        *hour = Some(Rate::from_bits_per_sec(number(rate)?));
    }
    let config = Box::new(ControllerConfig {
        program: String::from(program),
        bounds,
        learned,
    });
    Some(Start { at, resumes, config })
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

fn rate(text: &str) -> Option<Option<Rate>> {
    match text {
        "-" => Some(None),
        text => Some(Some(Rate::from_bits_per_sec(number(text)?))),
    }
}

fn read_samples(
    kind: &str,
    at: Instant,
    parts: &mut Split<'_, char>,
    samples: &mut Vec<Sample>,
) -> Option<()> {
    let mut put = |signal| samples.push(Sample { at, signal });
    let mut next = || parts.next();
    let traffic = |direction, bytes, span| Signal::Traffic {
        direction,
        bytes: Bytes(bytes),
        span: Nanos(span),
    };
    match kind {
        "echo" => {
            let (reflector, rtt) = (number(next()?)?, micros(next()?)?);
            let age = match next() {
                Some(age) => signed(age)?,
                None => rtt as i64,
            };
            put(Signal::Echo {
                reflector,
                sent: before(at, age),
                rtt: Nanos(rtt),
            });
        }
        "oneway" => put(Signal::OneWay {
            reflector: number(next()?)?,
            sent: before(at, signed(next()?)?),
            download: signed(next()?)?,
            upload: signed(next()?)?,
        }),
        "waiting" => put(Signal::Waiting {
            reflector: number(next()?)?,
            sent: before(at, signed(next()?)?),
        }),
        "lost" => put(Signal::Lost {
            reflector: number(next()?)?,
        }),
        "flow" => put(Signal::Flow {
            flow: number(next()?)?,
            sent: before(at, signed(next()?)?),
            download: signed(next()?)?,
            upload: match next() {
                Some(upload) => Some(signed(upload)?),
                None => None,
            },
        }),
        "down" => put(traffic(Direction::Download, number(next()?)?, micros(next()?)?)),
        "up" => put(traffic(Direction::Upload, number(next()?)?, micros(next()?)?)),
        "bytes" => {
            let (down, up, span) = (number(next()?)?, number(next()?)?, micros(next()?)?);
            put(traffic(Direction::Download, down, span));
            put(traffic(Direction::Upload, up, span));
        }
        "hour" => put(Signal::Hour(number(next()?).filter(|hour| *hour < 24)?)),
        _ => return None,
    }
    Some(())
}

/// The word for a reason, and the delay that follows it.
pub(crate) const fn of_reason(reason: Reason) -> (&'static str, Option<Nanos>) {
    match reason {
        Reason::Start => ("start", None),
        Reason::Unloaded => ("unloaded", None),
        Reason::SlowStartGuard => ("begins", None),
        Reason::Steady => ("steady", None),
        Reason::Grow => ("grow", None),
        Reason::SmallQueue { delay } => ("settle", Some(delay)),
        Reason::Bufferbloat { delay } => ("bloat", Some(delay)),
        Reason::Draining { delay } => ("drain", Some(delay)),
        Reason::PathChanged { by } => ("path-changed", Some(by)),
        Reason::SignalsLost => ("signals-lost", None),
        Reason::Decay => ("decay", None),
        Reason::Learned => ("learned", None),
        Reason::OtherDirectionDropped => ("other-fell", None),
    }
}

pub(crate) fn reason(text: &str) -> Option<Reason> {
    let (word, delay) = match text.split_once(':') {
        Some((word, delay)) => (word, Some(Nanos(micros(delay)?))),
        None => (text, None),
    };
    match (word, delay) {
        ("start", None) => Some(Reason::Start),
        ("unloaded", None) => Some(Reason::Unloaded),
        ("begins", None) => Some(Reason::SlowStartGuard),
        ("steady", None) => Some(Reason::Steady),
        ("grow", None) => Some(Reason::Grow),
        ("settle", Some(delay)) => Some(Reason::SmallQueue { delay }),
        ("bloat", Some(delay)) => Some(Reason::Bufferbloat { delay }),
        ("drain", Some(delay)) => Some(Reason::Draining { delay }),
        ("path-changed", Some(by)) => Some(Reason::PathChanged { by }),
        ("signals-lost", None) => Some(Reason::SignalsLost),
        ("decay", None) => Some(Reason::Decay),
        ("learned", None) => Some(Reason::Learned),
        ("other-fell", None) => Some(Reason::OtherDirectionDropped),
        _ => None,
    }
}
