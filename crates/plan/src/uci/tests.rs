use proptest::prelude::*;

use super::*;

const FILE: &str = "\
# shaping
package sqm

config queue 'eth1'
\toption enabled '1'   # on
\toption\tinterface \"eth1\"
  option download 85000
\tlist note 'it'\\''s here'

\toption eqdisc_opts \"nat \\\"quoted\\\" dual-srchost\"
config queue; option upload 5; # ; not this
\toption folded 'two
lines'
c queue third";

fn values(document: &Document, section: usize) -> Vec<(usize, String, String)> {
    let sections = document.sections();
    sections[section]
        .settings
        .iter()
        .map(|s| (s.line, s.name.to_owned(), s.value.to_owned()))
        .collect()
}

#[test]
fn reads_sections_names_and_values() {
    let document = Document::parse(FILE).unwrap();
    let sections = document.sections();
    let heads: Vec<_> = sections
        .iter()
        .map(|s| (s.index, s.line, s.kind, s.name))
        .collect();
    assert_eq!(
        heads,
        [
            (0, 4, "queue", Some("eth1")),
            (1, 11, "queue", None),
            (2, 14, "queue", Some("third"))
        ]
    );
    let expected = [
        (5, "enabled", "1"),
        (6, "interface", "eth1"),
        (7, "download", "85000"),
        (8, "note", "it's here"),
        (10, "eqdisc_opts", "nat \"quoted\" dual-srchost"),
    ];
    assert_eq!(
        values(&document, 0),
        expected.map(|(line, name, value)| (line, name.into(), value.into()))
    );
    assert!(sections[0].settings[3].is_list);
    assert_eq!(
        values(&document, 1)[1],
        (12, "folded".into(), "two\nlines".into())
    );
}

#[test]
fn errors_name_the_line() {
    for (text, errors) in [
        (
            "option a b",
            vec!["line 1: 'option' comes before the first 'config' line"],
        ),
        (
            "config queue\n\noptoin a b\n",
            vec!["line 3: unknown keyword 'optoin'"],
        ),
        ("config queue\noption a", vec!["line 2: 'option a' has no value"]),
        (
            "config\n",
            vec!["line 1: 'config' has no name: write one after it"],
        ),
        (
            "config queue\noption opts nat wash\noption 'b c' 1",
            vec![
                "line 2: 'option opts' has several values; put quotes around a value with blanks",
                "line 3: 'b c' is not a name: a name has only letters, digits, '_' and '-'",
            ],
        ),
        (
            "config queue\noption a 'b\noption c d\n",
            vec!["line 2: the quote ' that begins here is not closed"],
        ),
        (
            "config queue one two",
            vec!["line 1: too many words after 'config'"],
        ),
    ] {
        let found: Vec<String> = Document::parse(text)
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, errors, "{text}");
    }
    let error = &Document::parse("config queue\noptoin a b").unwrap_err()[0];
    assert_eq!(error.suggestion.as_deref(), Some("option"));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let error = |bytes: &[u8]| Document::parse_bytes(bytes).unwrap_err()[0].to_string();
    assert_eq!(
        error(b"config queue\n\xff"),
        "line 2: invalid UTF-8 at byte 13: this is not a text file"
    );
    assert_eq!(
        error(b"\n\n\0"),
        "line 3: zero byte at byte 2: this is not a text file"
    );
}

#[test]
fn a_change_touches_one_line() {
    let mut document = Document::parse(FILE).unwrap();
    assert!(document.set(0, "download", "10mbit"));
    assert_eq!(
        document.to_string(),
        FILE.replace("download 85000", "download '10mbit'")
    );
    assert!(document.set(0, "enabled", "0"));
    assert!(document.to_string().contains("\toption enabled '0'   # on\n"));
    assert!(document.set(1, "upload", "6"));
    assert!(
        document
            .to_string()
            .contains("config queue; option upload '6'; # ; not this\n")
    );
    assert!(document.set(0, "overhead", "it's"));
    assert!(
        document
            .to_string()
            .contains("dual-srchost\"\n\toption overhead 'it'\\''s'\nconfig queue;")
    );
    assert!(document.set(2, "enabled", "1"));
    assert!(
        document
            .to_string()
            .ends_with("c queue third\n\toption enabled '1'\n")
    );
    assert!(!document.set(3, "enabled", "1"));
    assert!(!document.set(0, "not a name", "1"));
    let again = Document::parse(&document.to_string()).unwrap();
    assert_eq!(again.sections(), document.sections());
}

#[test]
fn a_huge_line_is_read_in_one_pass() {
    for piece in [
        "x",
        "'",
        "\"",
        "\\",
        "a ",
        "config a ",
        "option ",
        "# ",
        "\\'",
        "''",
        ";",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        let errors = Document::parse(&text).err().unwrap_or_default();
        assert!(errors.iter().all(|error| error.message.len() < 400), "{piece}");
    }
}

proptest! {
    #[test]
    fn what_is_read_is_written_back_and_can_be_changed(
        text in "(config a|option b|list b|package c| |;|\n){0,6}((config|option|list|#|;|\\\\|\n|'|\"| |a|b|é){0,30})"
    ) {
        if let Ok(mut document) = Document::parse(&text) {
            prop_assert_eq!(document.to_string(), text);
            if document.set(0, "b", "it's\nnew") {
                let again = Document::parse(&document.to_string()).unwrap();
                prop_assert_eq!(again.sections(), document.sections());
                prop_assert!(again.sections()[0].settings.iter().any(|s| s.name == "b" && s.value == "it's\nnew"));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Document::parse_bytes(&bytes);
    }

    #[test]
    fn any_value_can_be_set(value in "[^\0]*") {
        let mut document = Document::parse(FILE).unwrap();
        for option in ["eqdisc_opts", "new"] {
            prop_assert!(document.set(0, option, &value));
            let again = Document::parse(&document.to_string()).unwrap();
            let sections = again.sections();
            let stands = sections[0].settings.iter().find(|s| s.name == option).unwrap();
            prop_assert_eq!(stands.value, value.as_str());
            prop_assert_eq!(again.sections(), document.sections());
        }
    }
}

#[test]
fn options_and_sections_come_and_go_and_the_rest_stays() {
    let mut document = Document::parse(FILE).unwrap();
    assert!(document.unset(0, "download") && document.unset(0, "no_such") && document.remove(1));
    assert!(document.add("queue") && document.set(2, "interface", "eth7"));
    assert!(!document.unset(9, "download") && !document.remove(9) && !document.add("no name"));
    let text = document.to_string();
    let expected = FILE.replace("  option download 85000\n", "").replace(
        "config queue; option upload 5; # ; not this\n\toption folded 'two\nlines'\n",
        "",
    ) + "\n\nconfig queue\n\toption interface 'eth7'\n";
    assert_eq!(text, expected);
    assert_eq!(Document::parse(&text).unwrap().sections(), document.sections());

    let mut document = Document::parse("").unwrap();
    assert!(document.add("queue"));
    assert_eq!(document.to_string(), "config queue\n");
}
