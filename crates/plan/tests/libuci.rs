//! A file that libuci reads or refuses is read or refused here, but for the listed differences. The right column is what libuci
//! (66127cd, November 2025) made of the file: its sections, with the values of options as `name=<value>` and those of lists as
//! `[name]<value><value>`, or `None` if it refused it.

use sqm_plan::uci::bytes::to_bytes;
use sqm_plan::uci::{Document, without_errors};

type Case = (&'static str, &'static [u8], Option<&'static [u8]>);

#[rustfmt::skip]
const CASES: [Case; 94] = [
    ("no quotes", b"config queue eth1\n\toption a 1\n", Some(b"queue eth1: a=<1>")),
    ("double quotes", b"config \"queue\" \"eth1\"\n\toption \"a\" \"1\"\n", Some(b"queue eth1: a=<1>")),
    ("pieces that join", b"config qu'eu'e et\"h\"1\n\toption a x'y'\"z\"\n", Some(b"queue eth1: a=<xyz>")),
    ("a quote in a value", b"config queue\n\toption a 'it'\\''s'\n", Some(b"queue: a=<it's>")),
    ("a backslash outside quotes", b"config queue\n\toption a x\\ y\\'z\n", Some(b"queue: a=<x y'z>")),
    ("a backslash in double quotes", b"config queue\n\toption a \"x\\\"y\\\\z\\n\"\n", Some(b"queue: a=<x\"y\\zn>")),
    ("a backslash in single quotes", b"config queue\n\toption a 'x\\y'\n", Some(b"queue: a=<x\\y>")),
    ("a line that goes on", b"config queue\n\toption a \\\nx\n", Some(b"queue: a=<x>")),
    ("a word that goes on", b"config queue\n\toption a x\\\ny\n", Some(b"queue: a=<xy>")),
    ("a word that goes on in double quotes", b"config queue\n\toption a \"x\\\ny\"\n", Some(b"queue: a=<xy>")),
    ("a line that goes on with a blank", b"config queue\n\toption a \\\n\tx\n", None),
    ("a single quote over two lines", b"config queue\n\toption a 'x\ny'\n", Some(b"queue: a=<x\ny>")),
    ("a double quote over two lines", b"config queue\n\toption a \"x\ny\"\n", Some(b"queue: a=<x\ny>")),
    ("a comment", b"# c\n\t# c\nconfig queue\n\toption a 1\n", Some(b"queue: a=<1>")),
    ("a comment behind a statement", b"config queue # c\n\toption a 1 # c\n", Some(b"queue: a=<1>")),
    ("a comment directly behind a word", b"config queue#c\n\toption a 1#c\n", Some(b"queue: a=<1>")),
    ("a comment directly behind a quote", b"config queue\n\toption a '1'#c\n", Some(b"queue: a=<1>")),
    ("a # in quotes", b"config queue\n\toption a 'x#y'\n", Some(b"queue: a=<x#y>")),
    ("; directly behind words without quotes", b"config queue eth1; option a 1\n\toption b 2; option c 3\n", Some(b"queue eth1: b=<2>")),
    ("; without blanks", b"config queue eth1;option a 1;option b 2\n", Some(b"queue eth1:")),
    ("; in quotes", b"config queue\n\toption a 'x;y'\n", Some(b"queue: a=<x;y>")),
    ("; behind a quote", b"config queue 'eth1'; option a '1'; option b '2'\n", Some(b"queue eth1: a=<1> b=<2>")),
    ("; behind a blank", b"config queue eth1 ; option a 1 ; option b 2\n", Some(b"queue eth1: a=<1> b=<2>")),
    ("keywords of one letter", b"p sqm\nc queue eth1\n\to a 1\n\tl b 2\n", Some(b"queue eth1: a=<1> [b]<2>")),
    ("a package line", b"package sqm\nconfig queue\n\toption a 1\n", Some(b"queue: a=<1>")),
    ("a package line with another name", b"package qos-2\nconfig queue\n\toption a 1\n", Some(b"queue: a=<1>")),
    ("a package line in the middle", b"config queue\n\toption a 1\npackage sqm\n\toption b 2\n", Some(b"queue: a=<1> b=<2>")),
    ("an empty name", b"config queue ''\n\toption a 1\n", Some(b"queue: a=<1>")),
    ("two sections without a name", b"config queue\n\toption a 1\nconfig queue\n\toption a 2\n", Some(b"queue: a=<1> | queue: a=<2>")),
    ("two sections of one name", b"config queue eth1\n\toption a 1\n\toption b 1\nconfig queue eth2\nconfig queue eth1\n\toption b 2\n\toption c 3\n", Some(b"queue eth1: a=<1> b=<2> c=<3> | queue eth2:")),
    ("one name and two types", b"config queue eth1\n\toption a 1\nconfig other eth1\n\toption b 2\n", None),
    ("an option twice", b"config queue\n\toption a 1\n\toption b 1\n\toption a 2\n", Some(b"queue: a=<2> b=<1>")),
    ("an option that is emptied later", b"config queue\n\toption a 1\n\toption a ''\n", Some(b"queue: a=<1>")),
    ("an empty value", b"config queue\n\toption a ''\n\toption b 1\n", Some(b"queue: b=<1>")),
    ("no value", b"config queue\n\toption a\n\toption b 1\n", Some(b"queue: b=<1>")),
    ("a list", b"config queue\n\tlist a 1\n\tlist a '2 3'\n", Some(b"queue: [a]<1><2 3>")),
    ("a list, then an option", b"config queue\n\tlist a 1\n\toption a 2\n", Some(b"queue: a=<2>")),
    ("an option, then a list", b"config queue\n\toption a 1\n\tlist a 2\n", Some(b"queue: [a]<1><2>")),
    ("a list with an empty value", b"config queue\n\tlist a 1\n\tlist a ''\n", Some(b"queue: [a]<1><>")),
    ("too many words", b"config queue\n\toption a 1 2\n", None),
    ("- in an option's name", b"config queue\n\toption my-option 1\n", None),
    ("- in a section's name", b"config queue 'pppoe-wan'\n\toption a 1\n", None),
    (". in a section's name", b"config queue 'eth0.7'\n\toption a 1\n", None),
    ("- in a type", b"config my-type\n\toption a 1\n", Some(b"my-type: a=<1>")),
    (". in a type", b"config my.type x\n\toption a 1\n", Some(b"my.type x: a=<1>")),
    ("symbols in a type", b"config @type!\n\toption a 1\n", Some(b"@type!: a=<1>")),
    ("CR LF", b"config queue eth1\r\n\toption a '1'\r\n\toption b 2\r\n\r\n", Some(b"queue eth1: a=<1> b=<2>")),
    ("a byte order mark", b"\xef\xbb\xbfconfig queue\n\toption a 1\n", None),
    ("Latin-1 in a comment", b"# f\xfcr\nconfig queue\n\toption a 1\n", Some(b"queue: a=<1>")),
    ("Latin-1 in a value", b"config queue\n\toption a 'Gr\xfc\xdfe'\n", Some(b"queue: a=<Gr\xfc\xdfe>")),
    ("UTF-8 in a value", b"config queue\n\toption a 'Gr\xc3\xbc\xc3\x9fe'\n", Some(b"queue: a=<Gr\xc3\xbc\xc3\x9fe>")),
    ("a control character in a value", b"config queue\n\toption a 'x\x01y'\n", Some(b"queue: a=<x\x01y>")),
    ("no line end at the end", b"config queue\n\toption a 1", Some(b"queue: a=<1>")),
    ("an open single quote", b"config queue\n\toption a 'x\n\toption b 1\n", None),
    ("an open double quote", b"config queue\n\toption a \"x\n", None),
    ("an unknown keyword", b"config queue\n\toptoin a 1\n", None),
    ("an option before the first section", b"option a 1\nconfig queue\n", None),
    ("config alone", b"config\n\toption a 1\n", None),
    ("config alone, at the end", b"config", None),
    ("a backslash at the end", b"config queue\n\\", None),
    ("a backslash at the end of a value", b"config queue\n\toption a x\\", Some(b"queue: a=<x>")),
    ("an empty file", b"", Some(b"")),
    ("comments only", b"# c\n\n# d\n", Some(b"")),
    ("tabs", b"\tconfig\tqueue\t\teth1\t\n\t\toption\t\ta\t1\t\n", Some(b"queue eth1: a=<1>")),
    ("VT and FF before a statement", b"\x0bconfig queue\n\x0coption a 1\n", Some(b"queue: a=<1>")),
    ("VT between words", b"config queue\n\toption a\x0b1\n", Some(b"queue: a=<1>")),
    ("VT behind a keyword", b"config queue\n\toption\x0ba 1\n", None),
    ("a keyword in quotes", b"config queue\n\t'option' a 1\n", None),
    ("the beginning of a keyword", b"config queue\n\topt a 1\n", None),
    ("a keyword in capitals", b"config queue\n\tOPTION a 1\n", None),
    ("an escaped quote in double quotes", b"config queue\n\toption a \"\\\"x\\\"\"\n", Some(b"queue: a=<\"x\">")),
    ("$ and `", b"config queue\n\toption a \"$x `y`\"\n", Some(b"queue: a=<$x `y`>")),
    ("a value of one blank", b"config queue\n\toption a ' '\n", Some(b"queue: a=< >")),
    ("a value with blanks", b"config queue\n\toption a 'x  y'\n", Some(b"queue: a=<x  y>")),
    ("a backslash before CR LF", b"config queue\n\toption a \\\r\nx\r\n", Some(b"queue: a=<x>")),
    ("CR LF in a quote", b"config queue\n\toption a 'x\r\ny'\r\n", Some(b"queue: a=<x\r\ny>")),
    ("a line of ;", b";\nconfig queue\n\toption a 1\n", None),
    ("; behind a section without a name", b"config queue ; option a 1\n", None),
    ("a comment behind a section", b"config queue eth1 # c\n\toption a 1\n", Some(b"queue eth1: a=<1>")),
    ("an empty type", b"config ''\n", None),
    ("an option's name in quotes", b"config queue\n\toption 'a' 1\n", Some(b"queue: a=<1>")),
    ("an empty name of an option", b"config queue\n\toption '' 1\n", None),
    ("CR without LF", b"config queue eth1\r\toption a 1\r", None),
    ("; at the end of a line, behind a quote", b"config queue\n\toption a '1';\n", None),
    ("; at the end of a line, behind a word", b"config queue eth1;\n\toption a 1;\n", Some(b"queue eth1: a=<1>")),
    ("; at the end of the file, behind a blank", b"config queue\n\toption a 1 ;", Some(b"queue: a=<1>")),
    ("an escaped blank", b"config queue\n\toption a x\\ y\n", Some(b"queue: a=<x y>")),
    ("an escaped #", b"config queue\n\toption a x\\#y\n", Some(b"queue: a=<x#y>")),
    ("an escaped ;", b"config queue\n\toption a x\\;y\n", Some(b"queue: a=<x;y>")),
    ("UTF-8 in a section's name", b"config queue 'gr\xc3\xbcn'\n\toption a 1\n", None),
    ("; in a word without quotes", b"config queue\n\toption a x;y\n\toption b 1\n", Some(b"queue: a=<x> b=<1>")),
    ("an escaped word directly before ;", b"config queue\n\toption a x\\y; option b 1\n", Some(b"queue: a=<xy> b=<1>")),
    ("an empty argument, then a statement", b"config queue\n\toption a 1 '' option b 2\n", Some(b"queue: a=<1> b=<2>")),
    ("a zero byte", b"config queue\n\toption a x\0y\n", None),
];

/// Files that libuci refuses and that are read here, with the remark that names the line and what to do.
const DIFFERENCES: [(&str, &[u8], &str); 3] = [
    (
        "- in an option's name",
        b"queue: my-option=<1>",
        "line 2: OpenWrt refuses the '-' in the option name 'my-option', and its programs do not see this option: name it \
         'my_option'",
    ),
    (
        "- in a section's name",
        b"queue pppoe-wan: a=<1>",
        "line 1: OpenWrt refuses the '-' in the section name 'pppoe-wan', and its programs do not see this section: name it \
         'pppoe_wan'",
    ),
    (
        "a byte order mark",
        b"queue: a=<1>",
        "line 1: the file begins with a byte order mark (U+FEFF), with which OpenWrt's libuci refuses it: save it without one",
    ),
];

/// A document in the form of the table.
fn form(document: &Document) -> Vec<u8> {
    let mut sections = Vec::new();
    for section in document.sections() {
        let mut options: Vec<(&str, bool, String)> = Vec::new();
        for setting in &section.settings {
            let value = format!("<{}>", setting.value);
            let known = options.iter_mut().find(|(name, ..)| *name == setting.name);
            match (known, setting.is_list) {
                (Some((_, is_list, values)), true) => {
                    *is_list = true;
                    values.push_str(&value);
                }
                (_, false) if setting.value.is_empty() => {}
                (Some(known), false) => *known = (setting.name, false, value),
                (None, is_list) => options.push((setting.name, is_list, value)),
            }
        }
        let head = match section.name {
            Some(name) => format!("{} {name}:", section.kind),
            None => format!("{}:", section.kind),
        };
        let options = options.into_iter().map(|(name, is_list, values)| match is_list {
            true => format!(" [{name}]{values}"),
            false => format!(" {name}={values}"),
        });
        sections.push(head + &options.collect::<String>());
    }
    to_bytes(&sections.join(" | "))
}

#[test]
fn a_file_is_read_as_libuci_reads_it() {
    for (name, bytes, libuci) in CASES {
        let differs = DIFFERENCES.iter().find(|(case, ..)| *case == name);
        let expected = differs.map(|(_, ours, _)| *ours).or(libuci);
        let document = Document::parse_bytes(bytes);
        let found = document.as_ref().ok().map(form);
        assert_eq!(
            found.as_ref().map(|found| String::from_utf8_lossy(found)),
            expected.map(String::from_utf8_lossy),
            "{name}: {document:?}"
        );
        if let Some((_, _, remark)) = differs {
            let remarks = document.expect("it is read").remarks().to_vec();
            let remarks: Vec<String> = remarks.iter().map(ToString::to_string).collect();
            assert_eq!(remarks, [*remark], "{name}");
        }
    }
}

#[test]
fn what_libuci_loses_is_reported_with_its_line_and_text() {
    for (text, expected) in [
        (
            "config queue eth1; option a 1\n",
            "line 1: ignored: 'option a 1': a ';' directly behind a word without quotes ('eth1') ends the line. Write each \
             statement on a line of its own, or put quotes around a value with a ';'",
        ),
        (
            "config queue\n\toption a x;y # c\n",
            "line 2: ignored: 'y # c': a ';' directly behind a word without quotes ('x') ends the line. Write each statement on \
             a line of its own, or put quotes around a value with a ';'",
        ),
        (
            "config queue\n\toption upload\n",
            "line 2: 'option upload' has no value and no effect: give it one, or remove it",
        ),
    ] {
        let document = Document::parse(text).expect("it is read");
        let remarks: Vec<String> = document.remarks().iter().map(ToString::to_string).collect();
        assert_eq!(remarks, [expected]);
    }
    for text in [
        "config queue;\n",
        "config queue; # c\n",
        "config queue 'eth1'; option a '1'\n",
        "config queue ''\n\toption a ''\n",
    ] {
        assert_eq!(Document::parse(text).expect("it is read").remarks(), [], "{text}");
    }
}

#[test]
fn what_is_refused_is_named_with_what_to_write() {
    for (text, expected) in [
        (
            "config queue 'eth1';\n",
            "line 1: there is a ';' at the end of the line: remove it",
        ),
        (
            ";\nconfig queue\n",
            "line 1: there is no statement in front of the ';': write each statement on a line of its own, without a ';'",
        ),
        (
            "config queue ; option a 1\n",
            "line 1: libuci takes the ';' for an argument of 'config': write each statement on a line of its own",
        ),
        (
            "config queue\n'option' a 1\n",
            "line 2: a keyword must not have quotes: write option without them",
        ),
        (
            "config queue a\n\nconfig other a\n",
            "line 3: section 'a' has the type 'queue' on line 1 and 'other' here: give this one another name",
        ),
    ] {
        let errors = Document::parse(text).expect_err("libuci refuses it");
        assert_eq!(errors[0].to_string(), expected);
    }
}

#[test]
fn a_line_in_error_becomes_a_comment_and_the_rest_stays() {
    let text = b"config queue a\n\toption b 1\n\toptoin c 2 # f\xfcr\n\toption d 3\nconfig queue 'x.y'\n\toption e 4\n\n\
                 config queue z\n\toption f '5'; option g 6 7\n";
    let (rest, errors) = without_errors(text).expect("some of it can be read");
    let expected: &[u8] = b"config queue a\n\toption b 1\n#\toptoin c 2 # f\xfcr\n\toption d 3\n#config queue 'x.y'\n#\toption e 4\n\n\
                 config queue z\n\toption f '5';# option g 6 7\n";
    assert_eq!(String::from_utf8_lossy(&rest), String::from_utf8_lossy(expected));
    let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [3, 5, 9]);
    let document = Document::parse_bytes(&rest).expect("nothing else is wrong");
    assert_eq!(form(&document), b"queue a: b=<1> d=<3> | queue z: f=<5>");

    // A quote that is not closed takes the rest of the file with it.
    let (rest, errors) =
        without_errors(b"config queue\n\toption a 1\n\toption b 'x\n\toption c 2\n").expect("read");
    assert_eq!(
        rest,
        b"config queue\n\toption a 1\n#\toption b 'x\n#\toption c 2\n"
    );
    assert_eq!(errors[0].line, 3);
    assert_eq!(without_errors(b"config queue\n").expect("read").1, []);
    assert!(without_errors(b"\0").is_err() && without_errors("oops\n".repeat(50).as_bytes()).is_err());
}
