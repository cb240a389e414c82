//! The command line as a whole: its help, and commands under their former names.

use std::collections::BTreeSet;
use std::process::{Command, Output};

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
        ("autorate bench --seed 1-20", "sqm-lab autorate-bench --seed 1-20"),
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
