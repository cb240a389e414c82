//! The command line as a whole: its help, and commands under their former names.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn sqm(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm"));
    command.args(words.split(' ')).output().expect("the program runs")
}

#[test]
fn a_former_name_answers_with_the_new_one() {
    for (former, new) in [
        ("lab up --line cable24", "sqm-lab up --line cable24"),
        ("lab", "sqm-lab"),
        ("bench --list", "sqm-lab bench --list"),
        ("autorate bench --seed 1-20", "sqm-lab autorate bench --seed 1-20"),
        ("report --out x", "sqm bugreport --out x"),
        (
            "tune --replay a.csv.old a.csv",
            "sqm autorate replay a.csv.old a.csv",
        ),
        ("tune --dry-run", "without --write"),
    ] {
        let output = sqm(former);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{former}: {said}");
        assert!(said.contains(new), "{former}: {said}");
    }
}

#[test]
fn a_former_name_of_the_lab_answers_with_the_new_one() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-lab"));
    let output = command
        .args(["autorate-bench", "--seed", "1-20"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("run 'sqm-lab autorate bench --seed 1-20'"),
        "{said}"
    );
}

#[test]
fn help_lists_the_commands_in_groups() {
    let output = sqm("--help");
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    let (shape, measure) = (help.find("\nShape:\n"), help.find("\nMeasure:\n"));
    assert!(shape.is_some() && shape < measure, "{help}");
    for line in ["  start ", "  tune ", "  bugreport "] {
        assert!(help.contains(line), "{line}: {help}");
    }
    assert!(!help.contains("watchdog") && !help.contains("  bench "), "{help}");
}

/// A terminal, which `script` makes, shows the beginning of an error in red.
#[test]
fn errors_have_a_colour_on_a_terminal_only_and_none_with_no_color() {
    let error = format!("{} plan --config /no/such/file", env!("CARGO_BIN_EXE_sqm"));
    let on_terminal = |no_color: &str| {
        let output = Command::new("script")
            .args(["-qec", &error, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let coloured = on_terminal("");
    assert!(
        coloured.starts_with("\x1b[1;31msqm:\x1b[0m there is no "),
        "{coloured:?}"
    );
    let plain = on_terminal("1");
    assert!(plain.starts_with("sqm: there is no "), "{plain:?}");
    let piped = sqm("plan --config /no/such/file");
    assert!(piped.stderr.starts_with(b"sqm: there is no "), "{piped:?}");
}

/// All commands of a program as words, from its help: `["calc", "goodput"]`. The first has no words.
fn commands(program: &str, above: &[String]) -> Vec<Vec<String>> {
    let help = help_of(program, above);
    let list = help.split("\nOptions:\n").next().unwrap();
    let names = list
        .lines()
        .skip_while(|line| !line.starts_with("Usage:"))
        .filter_map(|line| line.strip_prefix("  ")?.split("  ").next())
        .filter(|name| {
            !matches!(*name, "" | "help") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        });
    let below = names.flat_map(|name| commands(program, &[above, &[name.to_owned()]].concat()));
    [above.to_owned()].into_iter().chain(below).collect()
}

fn help_of(program: &str, words: &[String]) -> String {
    let output = Command::new(program).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_help_of_every_command_has_its_exit_codes() {
    for program in [env!("CARGO_BIN_EXE_sqm"), env!("CARGO_BIN_EXE_sqm-lab")] {
        let all = commands(program, &[]);
        assert!(all.len() > 8, "{all:?}");
        for words in all {
            let help = help_of(program, &words);
            assert_eq!(help.matches("Exit codes: ").count(), 1, "{words:?}: {help}");
        }
    }
}

#[test]
fn every_manual_page_has_its_sections_and_refers_to_pages_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        sqm(&format!("manual {}", folder.path().display()))
            .status
            .success()
    );
    let pages: BTreeSet<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    // The page of the configuration is the one that no command has.
    assert_eq!(pages.len(), commands(env!("CARGO_BIN_EXE_sqm"), &[]).len() + 1);
    for name in &pages {
        let page = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let mut expected = vec!["NAME", "DESCRIPTION", "SEE ALSO"];
        if name.ends_with(".8") {
            expected.extend(["SYNOPSIS", "EXIT STATUS"]);
        }
        for section in expected {
            assert!(
                page.contains(&format!(".SH \"{section}\"\n")),
                "{name}: {section}"
            );
        }
        assert!(!page.contains("EXTRA"), "{name}");
        let plain = page.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
        for (before, section) in plain.match_indices("(8)").chain(plain.match_indices("(5)")) {
            let word = plain[..before].rsplit([' ', '\n', '(', ',']).next().unwrap();
            // Pages of other programs.
            if word.starts_with("sqm") {
                let file = format!("{word}.{}", &section[1..2]);
                assert!(pages.contains(&file), "{name} refers to {file}");
            }
        }
    }
    let start = std::fs::read_to_string(folder.path().join("sqm-start.8")).unwrap();
    assert!(start.contains("[\\fB\\-\\-config\\fR \\fIFILE\\fR]\n"), "{start}");
    assert!(start.contains(".EX\nsqm start\nsqm start eth0\n"), "{start}");
    assert!(start.contains("\\fI/etc/config/sqm\\fR"), "{start}");
    assert!(start.contains("sqm\\-stop\\fR(8)"), "{start}");
}

#[test]
fn a_missing_argument_is_named_with_its_alternatives() {
    for (words, alternative) in [
        ("calc fifo 1mbit", "--delay <TIME>"),
        ("calc shape", "--measured <DOWN> <UP>"),
    ] {
        let output = sqm(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains("In place of "), "{words}: {said}");
        assert!(said.contains(alternative), "{words}: {said}");
    }
}

#[test]
fn a_limit_of_the_servers_rate_has_a_unit() {
    let output = sqm("serve --max-rate 100 --secret none");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("100mbit, or 100kbit"), "{said}");
    let output = sqm("serve --max-rate 100mbit --secret none");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot read the secret in none"), "{said}");
}

/// Each command without terminal, configuration and privileges: its words, its exit code, and a part of its message.
const ALONE: [(&str, i32, &str); 57] = [
    ("sqm autorate replay none.csv", 1, "cannot read none.csv"),
    ("sqm bugreport --config none --seconds 0 --out report", 0, ""),
    ("sqm calc fifo 1mbit", 2, "--delay"),
    ("sqm calc goodput", 2, "<RATE>"),
    ("sqm calc gross", 2, "<GOODPUT>"),
    ("sqm calc latency", 2, "<RATE>"),
    ("sqm calc links", 0, ""),
    ("sqm calc packet", 0, ""),
    ("sqm calc shape", 2, "--measured"),
    ("sqm calc tin", 2, "<DSCP>"),
    ("sqm compare none.json", 1, "cannot read none.json"),
    ("sqm completions", 2, "<SHELL>"),
    ("sqm confirm", 1, "no change waits"),
    ("sqm daemon --config none", 3, "root"),
    ("sqm doctor --config none", 2, "run 'sqm setup'"),
    ("sqm fleet enroll r1", 2, "sqm fleet hub init"),
    ("sqm fleet export none", 2, "sqm fleet hub init"),
    ("sqm fleet history r1", 2, "sqm fleet hub init"),
    ("sqm fleet hub init none", 2, "--url"),
    ("sqm fleet plan none --all", 2, "sqm fleet hub init"),
    ("sqm fleet revoke r1", 2, "sqm fleet hub init"),
    ("sqm fleet roll-out halt none", 2, "sqm fleet hub init"),
    ("sqm fleet roll-out resume none", 2, "sqm fleet hub init"),
    ("sqm fleet roll-out revert none", 2, "sqm fleet hub init"),
    ("sqm fleet roll-out run none", 2, "sqm fleet hub init"),
    (
        "sqm fleet roll-out start none none --all",
        2,
        "sqm fleet hub init",
    ),
    ("sqm fleet set none --all", 2, "sqm fleet hub init"),
    ("sqm fleet status", 2, "sqm fleet hub init"),
    ("sqm fleet watch", 2, "sqm fleet hub init"),
    ("sqm fleet web", 2, "sqm fleet hub init"),
    ("sqm fleet-check --config none", 2, "run 'sqm setup'"),
    ("sqm import none", 2, "none"),
    ("sqm manual none", 1, "cannot write none/"),
    ("sqm plan --config none", 2, "run 'sqm setup'"),
    ("sqm reload --config none", 2, "run 'sqm setup'"),
    ("sqm replay --qdisc fq_codel --link 1mbit none", 2, "none"),
    ("sqm serve --secret none", 2, "cannot read the secret in none"),
    ("sqm setup --config none", 3, "root"),
    ("sqm start --config none", 2, "run 'sqm setup'"),
    ("sqm status --config none", 2, "run 'sqm setup'"),
    ("sqm status --daemon", 1, "is 'sqm daemon' running?"),
    ("sqm stop", 3, "root"),
    ("sqm test", 2, "--url"),
    (
        "sqm tune",
        2,
        "(sqm tune HOST), the URL of a large file (sqm tune URL)",
    ),
    ("sqm tune server.example", 3, "root"),
    ("sqm verify --config none", 2, "run 'sqm setup'"),
    (
        "sqm web --dir /proc/none",
        1,
        "/proc/none: No such file or directory; --dir names another folder",
    ),
    ("sqm-lab autorate bench --list", 0, ""),
    ("sqm-lab bench --list", 0, ""),
    ("sqm-lab demo --out /proc/none", 1, "/proc/none"),
    ("sqm-lab down", 1, "sqm-lab up"),
    ("sqm-lab fleet-demo --out /proc/none", 1, "/proc/none"),
    ("sqm-lab forward none 80", 2, "its hosts are"),
    ("sqm-lab lines", 0, ""),
    ("sqm-lab run h1 -- true", 1, "sqm-lab up"),
    ("sqm-lab shell none", 2, "its hosts are"),
    ("sqm-lab up --line none", 2, "its lines are"),
];

/// Runs a command without terminal and without `CAP_NET_ADMIN`, in a folder of its own.
fn alone(folder: &Path, words: &str) -> Output {
    let mut words = words.split(' ');
    let program = match words.next() {
        Some("sqm-lab") => env!("CARGO_BIN_EXE_sqm-lab"),
        _ => env!("CARGO_BIN_EXE_sqm"),
    };
    let mut command = support::without_net_admin(program);
    command.args(words).current_dir(folder).stdin(Stdio::null());
    for variable in ["SQM_STATE_DIR", "XDG_RUNTIME_DIR", "TMPDIR", "HOME"] {
        command.env(variable, folder);
    }
    command.output().unwrap()
}

#[test]
fn every_command_fails_in_plain_words_without_terminal_configuration_and_privileges() {
    let folder = tempfile::tempdir().unwrap();
    for (words, code, part) in ALONE {
        let output = alone(folder.path(), words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(part), "{words}: {said}");
        for word in ["panicked", "backtrace", "os error"] {
            assert!(!said.contains(word), "{words}: {said}");
        }
        // An error of clap has the usage below it; all others are a line.
        let is_usage = said.starts_with("error: ");
        assert!(is_usage || said.lines().count() <= 1, "{words}: {said}");
    }
    for (name, program) in [
        ("sqm", env!("CARGO_BIN_EXE_sqm")),
        ("sqm-lab", env!("CARGO_BIN_EXE_sqm-lab")),
    ] {
        let all = commands(program, &[]);
        let has_below = |one: &[String]| {
            all.iter()
                .any(|other| other.len() > one.len() && other.starts_with(one))
        };
        for leaf in all.iter().filter(|one| !has_below(one)) {
            let words = format!("{name} {}", leaf.join(" "));
            assert!(
                ALONE.iter().any(|(row, ..)| row.starts_with(&words)),
                "no row for '{words}'"
            );
        }
    }
}

/// The words that a shell offers for the last of these, on a machine with the devices lo, d0 and d1.
fn offered(shell: &str, words: &[&str]) -> BTreeSet<String> {
    let ask = "ip link add d0 type veth peer name d1 && exec \"$@\"";
    let output = support::in_own_network()
        .args(["sh", "-c", ask, "sh", env!("CARGO_BIN_EXE_sqm"), "--", "sqm"])
        .args(words)
        .env("SQM_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    // zsh and fish show a description behind the word.
    let word = |line: &str| line.split(['\t', ':']).next().unwrap().to_owned();
    lines.lines().map(word).collect()
}

#[test]
fn shells_complete_interfaces_where_a_command_takes_one() {
    let both: BTreeSet<String> = ["d0", "d1"].map(str::to_owned).into();
    for shell in ["bash", "zsh", "fish"] {
        for command in ["start", "stop", "reload", "status", "verify", "plan"] {
            let words = offered(shell, &[command, "d"]);
            assert_eq!(words, both, "{shell}: {command}");
            assert_eq!(offered(shell, &[command, "d0", "d"]), both, "{shell}: {command}");
        }
        assert_eq!(offered(shell, &["setup", "--interface", "d"]), both, "{shell}");
        assert_eq!(offered(shell, &["tune", "server.example", "d"]), both, "{shell}");
        // Values that do not depend on the machine, and commands.
        assert!(
            offered(shell, &["setup", "--link", ""]).contains("docsis"),
            "{shell}"
        );
        assert!(
            offered(shell, &["test", "--test", ""]).contains("rrul_be"),
            "{shell}"
        );
        assert_eq!(offered(shell, &["relo"]), ["reload".to_owned()].into(), "{shell}");
    }
}

/// bash reads the script that packages ship, and calls it as it does at TAB.
#[test]
fn bash_completes_with_the_script_that_packages_ship() {
    let ask = "ip link add d0 type veth peer name d1
         source <(sqm completions bash)
         COMP_WORDS=(sqm start d) COMP_CWORD=2 COMP_TYPE=9
         _clap_complete_sqm sqm d start
         echo \"${COMPREPLY[@]}\"";
    let folder = Path::new(env!("CARGO_BIN_EXE_sqm")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = support::in_own_network()
        .args(["bash", "-c", ask])
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "d0 d1\n", "{said}");
}
