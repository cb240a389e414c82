//! Texts that ask for much work in few bytes.

use std::fmt::Write;

/// A kind of text, and how to make one with `count` pieces.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) make: fn(usize) -> String,
}

/// Everything of which a file can have many.
pub(crate) const HOSTILE: [Hostile; 26] = [
    Hostile {
        name: "named sections",
        make: |n| each(n, |text, at| writeln!(text, "config queue 'n{at}'")),
    },
    Hostile {
        name: "sections",
        make: |n| "config queue\n".repeat(n),
    },
    Hostile {
        name: "sections of the same name",
        make: |n| "c queue a\n".repeat(n),
    },
    Hostile {
        name: "sections of another kind",
        make: |n| each(n, |text, at| writeln!(text, "c x{at}")),
    },
    Hostile {
        name: "misspelt kinds",
        make: |n| "c qeue\n".repeat(n),
    },
    Hostile {
        name: "misspelt options",
        make: |n| "c queue\n".to_owned() + &"o interfcae a\n".repeat(n),
    },
    Hostile {
        name: "numbered options",
        make: |n| each(n, |text, at| writeln!(text, "c queue\no interface{} a", at % 100)),
    },
    Hostile {
        name: "unknown options",
        make: |n| "c queue\n".to_owned() + &each(n, |text, at| writeln!(text, "o abcdefgh{at} a")),
    },
    Hostile {
        name: "one option again and again",
        make: |n| "c queue\n".to_owned() + &"o upload 1\n".repeat(n),
    },
    Hostile {
        name: "list entries",
        make: |n| "c queue\no enabled 1\n".to_owned() + &"l iqdisc_opts nat\n".repeat(n),
    },
    Hostile {
        name: "reflectors",
        make: |n| {
            "c queue\no enabled 1\no autorate 1\n".to_owned() + &"l autorate_reflectors 192.0.2.1\n".repeat(n)
        },
    },
    Hostile {
        name: "wrong reflectors",
        make: |n| {
            each(n, |text, at| {
                let head = if at == 0 {
                    "c queue\no enabled 1\no autorate 1\n"
                } else {
                    ""
                };
                writeln!(text, "{head}l autorate_reflectors n{at}")
            })
        },
    },
    Hostile {
        name: "one interface again and again",
        make: |n| whole(n, |_| "eth0".to_owned(), "best_of_cake.qos", ""),
    },
    Hostile {
        name: "interfaces",
        make: |n| whole(n, |at| format!("e{at}"), "simple.qos", ""),
    },
    Hostile {
        name: "warnings",
        make: |n| {
            whole(
                n,
                |_| "eth0".to_owned(),
                "simple.qos",
                "o target 1\no use_mq 1\no cake_nat 1\n",
            )
        },
    },
    Hostile {
        name: "words of CAKE that set nothing again",
        make: |n| with_words(&"via-ethernet raw ".repeat(n)),
    },
    Hostile {
        name: "words of CAKE with different values",
        make: |n| {
            with_words(&each(n, |text, at| {
                write!(text, "rtt {}us mpu {} ", at + 1, at % 9)
            }))
        },
    },
    Hostile {
        name: "unknown keywords",
        make: |n| "foo bar\n".repeat(n),
    },
    Hostile {
        name: "a long word",
        make: |n| format!("c queue\no upload {}\n", "9".repeat(n)),
    },
    Hostile {
        name: "many words",
        make: |n| format!("c queue\no upload {}\n", "a ".repeat(n)),
    },
    Hostile {
        name: "joined pieces",
        make: |n| format!("c queue\no upload {}\n", "'a'\\b\"c\\\"\"".repeat(n)),
    },
    Hostile {
        name: "quotes that end a line later",
        make: |n| "c queue\n".to_owned() + &"o upload 'a\n'\n".repeat(n),
    },
    Hostile {
        name: "a quote that never ends",
        make: |n| format!("c queue\no upload '{}", "a\n\\".repeat(n)),
    },
    Hostile {
        name: "nothing",
        make: |n| ";".repeat(n),
    },
    Hostile {
        name: "continued lines",
        make: |n| format!("c queue\n{}o upload 1\n", "\\\n".repeat(n)),
    },
    Hostile {
        name: "comments",
        make: |n| "#\nc a;".repeat(n),
    },
];

fn each(count: usize, piece: impl Fn(&mut String, usize) -> std::fmt::Result) -> String {
    let mut text = String::new();
    for at in 0..count {
        piece(&mut text, at).expect("a text has room");
    }
    text
}

/// Enabled sections with everything they need.
fn whole(count: usize, interface: impl Fn(usize) -> String, script: &str, more: &str) -> String {
    each(count, |text, at| {
        let interface = interface(at);
        write!(
            text,
            "c queue\no enabled 1\no interface {interface}\no upload 9mbit\no download 9mbit\no script {script}\n{more}"
        )
    })
}

/// A section with these words for CAKE.
fn with_words(words: &str) -> String {
    let more = format!("o eqdisc_opts '{words}'\n");
    whole(1, |_| "eth0".to_owned(), "best_of_cake.qos", &more)
}
