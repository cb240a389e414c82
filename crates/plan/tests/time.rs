//! Reading a configuration takes time in proportion to its text, whatever it contains. What is compared is the processor's time
//! that this thread took, of which other programs on the machine take nothing away.

mod support;

use rustix::time::{ClockId, clock_gettime};
use sqm_plan::device::Device;
use sqm_plan::import::{Reader, Source, import};
use sqm_plan::uci::Document;

/// Four times the text may take this many times as long. Twice as long for each byte is a table that grew out of a cache; four
/// times as long for each byte is work that grows with the square of the text.
const MOST_RATIO: f64 = 9.0;
/// Less than this is noise, ns.
const LEAST_NS: u64 = 3_000_000;

#[test]
fn four_times_the_text_takes_four_times_as_long() {
    for kind in &support::HOSTILE {
        require_proportion(kind.name, &|pieces| {
            let text = (kind.make)(pieces);
            took(|| drop(sqm_plan::load(text.as_bytes(), "sqm", &Device::absent)))
        });
    }
}

#[test]
fn findings_of_one_kind_are_counted_and_only_some_are_printed() {
    for kind in &support::HOSTILE {
        let text = (kind.make)(2000);
        let told = match sqm_plan::load(text.as_bytes(), "sqm", &Device::absent) {
            Ok(loaded) => loaded.warnings,
            Err(errors) => errors,
        };
        let bytes: usize = told.iter().map(|diagnostic| diagnostic.to_string().len()).sum();
        assert!(
            told.len() < 300 && bytes < 100_000,
            "{}: {} findings",
            kind.name,
            told.len()
        );
    }
    let section = |at: usize| {
        format!(
            "config queue\n\toption enabled 1\n\toption interface e{at}\n\toption download 0\n\toption upload 1mbit\n\
             \toption script simple.qos\n\toption overhed 44\n"
        )
    };
    let file: String = (0..120).map(section).collect();
    let loaded = sqm_plan::load(file.as_bytes(), "sqm", &Device::absent).expect("it can be planned");
    let misspelt: Vec<_> = loaded
        .warnings
        .iter()
        .filter(|warning| warning.message.contains("no such option"))
        .collect();
    assert_eq!(misspelt.len(), 21, "{misspelt:?}");
    assert_eq!(
        misspelt[20].to_string(),
        "sqm:147: and 100 more of this kind, here: ignored: sqm has no such option"
    );
    assert_eq!(misspelt[19].suggestion.as_deref(), Some("overhead"));
}

#[test]
fn changes_take_as_long_as_what_they_change() {
    for (name, text) in [
        ("sections", "config queue\n\toption upload 1\n"),
        ("options", "o x 1\n"),
        ("comments", "#\n"),
    ] {
        require_proportion(name, &|pieces| {
            let text = "config queue\n".to_owned() + &text.repeat(pieces);
            let mut document = Document::parse(&text).expect("it is good");
            took(|| {
                let last = document.section_count() - 1;
                for value in 0..50 {
                    assert!(document.set(last, "upload", &value.to_string()));
                    assert!(document.set(0, &format!("new{value}"), "1"));
                    assert!(document.unset(0, &format!("new{value}")));
                    assert!(document.add("queue") && document.remove(last + 1));
                }
                drop(document.to_bytes());
            })
        });
    }
}

#[test]
fn files_of_sqm_scripts_take_time_in_proportion() {
    for (name, line) in [
        ("no assignments", "x\n"),
        ("one variable", "A=1\n"),
        ("quotes", "A='a'\"b\"c\n"),
        ("a value in itself", "A=$A$A$A$A\n"),
    ] {
        require_proportion(name, &|pieces| {
            let text = format!("A=0123456789\n{}", line.repeat(pieces));
            let source = Source {
                name: "sqm.conf",
                text: &text,
                reader: Reader::Shell,
            };
            took(|| match import("eth0", &[source]) {
                Ok(imported) => assert!(imported.differences.len() < 100),
                Err(errors) => assert!(errors.len() < 100, "{}", errors.len()),
            })
        });
    }
}

/// Answers the processor's time for a number of pieces.
type Timed<'a> = &'a dyn Fn(usize) -> u64;

/// Compares two sizes that take long enough to compare; the shortest of a few runs has the least noise.
fn require_proportion(name: &str, timed: Timed<'_>) {
    let least_of = |pieces| (0..3).map(|_| timed(pieces)).min().unwrap_or_default();
    let mut pieces = 250;
    while timed(pieces) < LEAST_NS && pieces < 1 << 17 {
        pieces *= 2;
    }
    if pieces >= 1 << 17 {
        // This many bytes take no time: reading ends at a limit.
        return;
    }
    let ratio = least_of(4 * pieces) as f64 / least_of(pieces) as f64;
    assert!(
        ratio < MOST_RATIO,
        "{name}: {pieces} pieces, {ratio:.1} times as long"
    );
}

/// The processor's time of this thread, ns.
fn took(work: impl FnOnce()) -> u64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    };
    let before = now();
    work();
    now() - before
}
