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
config queue ''; option upload '5'; # ; not this
\toption folded 'two
lines'
c queue third";

fn written(document: &Document) -> String {
    String::from_utf8(document.to_bytes()).unwrap()
}

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
        (
            "config\n",
            vec!["line 1: 'config' has no name: write one after it"],
        ),
        (
            "config queue\noption opts nat wash\noption 'b c' 1",
            vec![
                "line 2: 'option opts' has several values; put quotes around a value with blanks",
                "line 3: 'b c' is not a name: a name has only letters, digits and '_'",
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
fn a_zero_byte_is_refused_with_its_line() {
    let error = &Document::parse_bytes(b"\n\n\0").unwrap_err()[0];
    assert_eq!(
        error.to_string(),
        "line 3: zero byte at byte 2: this is not a text file"
    );
}

#[test]
fn bytes_that_are_not_utf_8_survive_an_edit() {
    let mut document =
        Document::parse_bytes(b"# f\xfcr\nconfig queue\n\toption note 'Gr\xfc\xdfe'\n").unwrap();
    assert!(document.set(0, "upload", "5") && document.set(0, "owner", "J\u{fc}rgen \u{10fffc}"));
    let expected = b"# f\xfcr\nconfig queue\n\toption note 'Gr\xfc\xdfe'\n\toption upload '5'\n\
                     \toption owner 'J\xc3\xbcrgen \xf4\x8f\xbf\xbc'\n";
    assert_eq!(document.to_bytes(), expected);
    assert!(document.set(0, "note", ""));
    assert!(!document.to_bytes().contains(&0xdf));
}

#[test]
fn sections_of_one_name_are_changed_as_one() {
    let text = "config queue a\n\toption b 1\nconfig queue x\n\toption b 3\nconfig queue a # again\n\toption b 2\n\toption c 4\n";
    let document = Document::parse(text).unwrap();
    assert_eq!(document.section_count(), 2);
    let changed = |change: &dyn Fn(&mut Document) -> bool| {
        let mut document = document.clone();
        assert!(change(&mut document));
        assert_eq!(
            Document::parse(&written(&document)).unwrap().sections(),
            document.sections()
        );
        written(&document)
    };
    assert_eq!(changed(&|d| d.set(0, "b", "7")), text.replace("b 2", "b '7'"));
    assert_eq!(
        changed(&|d| d.set(0, "d", "7")),
        text.to_owned() + "\toption d '7'\n"
    );
    assert_eq!(changed(&|d| d.set(1, "b", "7")), text.replace("b 3", "b '7'"));
    assert_eq!(
        changed(&|d| d.unset(0, "b")),
        "config queue a\nconfig queue x\n\toption b 3\nconfig queue a # again\n\toption c 4\n"
    );
    assert_eq!(changed(&|d| d.remove(0)), "config queue x\n\toption b 3\n");
    assert_eq!(document.value(0, "b"), Some("2"));
    assert_eq!(document.sections()[0].more_lines, [5]);
}

#[test]
fn an_edit_does_not_bring_to_life_what_a_semicolon_ends() {
    let mut document = Document::parse("config queue\n\toption a x; option b 1\n\toption c 2;\n").unwrap();
    assert!(document.set(0, "a", "y") && document.set(0, "c", "3"));
    assert_eq!(
        written(&document),
        "config queue\n\toption a 'y' #; option b 1\n\toption c '3' #;\n"
    );
    assert_eq!(
        Document::parse(&written(&document)).unwrap().sections(),
        document.sections()
    );
}

#[test]
fn statements_on_one_line_can_be_changed_one_by_one() {
    let text = "config queue 'a' ; option b '1' ; option c '2' # x\nconfig queue\n";
    let changed = |change: &dyn Fn(&mut Document) -> bool| {
        let mut document = Document::parse(text).unwrap();
        assert!(change(&mut document));
        assert_eq!(
            Document::parse(&written(&document)).unwrap().sections(),
            document.sections()
        );
        written(&document)
    };
    assert_eq!(changed(&|d| d.unset(0, "b")), text.replace(" option b '1' ;", ""));
    assert_eq!(
        changed(&|d| d.unset(0, "c")),
        "config queue 'a' ; option b '1' \nconfig queue\n"
    );
    assert_eq!(
        changed(&|d| d.set(0, "d", "3")),
        text.replace("x\n", "x\n\toption d '3'\n")
    );
    // Ends of a file in the middle of a line.
    for end in ["\\", "\\\n", "\\\r\n", "\\\r", " ;", " ; # c", " ''", " # c\\"] {
        let mut document = Document::parse(&format!("config queue\n\toption b 1{end}")).unwrap();
        let value = document.value(0, "b").unwrap().to_owned();
        assert!(document.set(0, "c", "2") && document.add("queue"), "{end:?}");
        let again = Document::parse(&written(&document)).unwrap();
        assert_eq!(again.sections(), document.sections(), "{end:?}");
        assert_eq!(
            (again.value(0, "b"), again.value(0, "c")),
            (Some(&*value), Some("2")),
            "{end:?}"
        );
    }
}

#[test]
fn a_change_touches_one_line() {
    let mut document = Document::parse(FILE).unwrap();
    assert!(document.set(0, "download", "10mbit"));
    assert_eq!(
        written(&document),
        FILE.replace("download 85000", "download '10mbit'")
    );
    assert!(document.set(0, "enabled", "0"));
    assert!(written(&document).contains("\toption enabled '0'   # on\n"));
    assert!(document.set(1, "upload", "6"));
    assert!(written(&document).contains("config queue ''; option upload '6'; # ; not this\n"));
    assert!(document.set(0, "overhead", "it's"));
    assert!(written(&document).contains("dual-srchost\"\n\toption overhead 'it'\\''s'\nconfig queue '';"));
    assert!(document.set(2, "enabled", "1"));
    assert!(written(&document).ends_with("c queue third\n\toption enabled '1'\n"));
    assert!(!document.set(3, "enabled", "1"));
    assert!(!document.set(0, "not a name", "1"));
    let again = Document::parse(&written(&document)).unwrap();
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
        text in "(config a|option b|list b|package c| |;|\n){0,6}((config|option|list|#|;|\\\\|\n|\r|'|\"| |a|b|é|\u{10fffc}){0,30})"
    ) {
        if let Ok(mut document) = Document::parse(&text) {
            prop_assert_eq!(written(&document), text);
            if document.set(0, "b", "it's\nnew") {
                let again = Document::parse(&written(&document)).unwrap();
                prop_assert_eq!(again.sections(), document.sections());
                prop_assert!(again.sections()[0].settings.iter().any(|s| s.name == "b" && s.value == "it's\nnew"));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_kept_through_an_edit(
        start in "(config a|option b '|# |package c|\n){0,3}",
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        end in "('|\n|config a\n| ;|\\\\)?"
    ) {
        let text = [start.as_bytes(), &bytes, end.as_bytes()].concat();
        if let Ok(document) = Document::parse_bytes(&text) {
            prop_assert_eq!(&document.to_bytes(), &text);
            for section in 0..document.section_count() {
                for (option, value) in [("b", "new"), ("c", "new"), ("b", "")] {
                    let mut document = document.clone();
                    prop_assert!(document.set(section, option, value));
                    let again = Document::parse_bytes(&document.to_bytes()).unwrap();
                    prop_assert_eq!(again.sections(), document.sections());
                    prop_assert_eq!(again.value(section, option).unwrap_or_default(), value);
                }
                let mut document = document.clone();
                prop_assert!(document.unset(section, "b") && document.remove(section) && document.add("queue"));
                let again = Document::parse_bytes(&document.to_bytes()).unwrap();
                prop_assert_eq!(again.sections(), document.sections());
            }
        }
        if let Ok((rest, _)) = without_errors(&text) {
            prop_assert!(Document::parse_bytes(&rest).is_ok());
        }
    }

    #[test]
    fn any_value_can_be_set(value in "([^\0]|[\u{10ff80}-\u{10ffff}])*") {
        let mut document = Document::parse(FILE).unwrap();
        for option in ["eqdisc_opts", "new"] {
            prop_assert!(document.set(0, option, &value));
            let again = Document::parse(&written(&document)).unwrap();
            let sections = again.sections();
            let stands = sections[0].settings.iter().find(|s| s.name == option).unwrap();
            prop_assert_eq!(to_bytes(stands.value), value.as_bytes());
            prop_assert_eq!(again.sections(), document.sections());
        }
    }
}

#[test]
fn a_comment_directly_above_a_section_stays_when_the_one_before_it_goes() {
    let without_first = |text: &str| {
        let mut document = Document::parse(text).unwrap();
        assert!(document.remove(0));
        written(&document)
    };
    let next = "# about b\n\t# two lines\nconfig queue b\n\toption c 1\n";
    assert_eq!(
        without_first(&format!(
            "# file\nconfig queue a # mine\n\toption c 1 # inner\n# at its end\n\n{next}"
        )),
        format!("# file\n{next}")
    );
    assert_eq!(without_first(&format!("config queue a # mine\n{next}")), next);
    assert_eq!(
        without_first("config queue a # mine\nconfig queue b\n"),
        "config queue b\n"
    );
    assert_eq!(
        without_first("config queue a\n# end\n\nconfig queue b\n"),
        "config queue b\n"
    );
    assert_eq!(without_first("config queue a\n# end\n"), "");
}

#[test]
fn options_and_sections_come_and_go_and_the_rest_stays() {
    let mut document = Document::parse(FILE).unwrap();
    assert!(document.unset(0, "download") && document.unset(0, "no_such") && document.remove(1));
    assert!(document.add("queue") && document.set(2, "interface", "eth7"));
    assert!(!document.unset(9, "download") && !document.remove(9) && !document.add("no name"));
    let text = written(&document);
    let expected = FILE.replace("  option download 85000\n", "").replace(
        "config queue ''; option upload '5'; # ; not this\n\toption folded 'two\nlines'\n",
        "",
    ) + "\n\nconfig queue\n\toption interface 'eth7'\n";
    assert_eq!(text, expected);
    assert_eq!(Document::parse(&text).unwrap().sections(), document.sections());

    let mut document = Document::parse("").unwrap();
    assert!(document.add("queue"));
    assert_eq!(written(&document), "config queue\n");
}
