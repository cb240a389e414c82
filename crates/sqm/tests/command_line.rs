//! The command line as a whole: its help, and commands under their former names.

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
