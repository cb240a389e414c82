//! Completion in zsh and fish with the scripts that packages ship. bash, which every machine has, is in `command_line.rs`.

use std::path::Path;
use std::process::Command;

/// Each line as it is typed before TAB, and as it is after it.
const LINES: [(&str, &str); 4] = [
    ("sqm relo", "sqm reload"),
    ("sqm test --upload-u", "sqm test --upload-url"),
    ("sqm setup --link satel", "sqm setup --link satellite"),
    ("sqm test --test rrul_be_n", "sqm test --test rrul_be_nflows"),
];

/// The output of a script of this shell, with `sqm` in the path.
fn said(shell: &str, arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_sqm")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = Command::new(shell)
        .args(arguments)
        .env("PATH", path)
        .env("TERM", "dumb")
        .output()
        .unwrap_or_else(|error| panic!("{shell}: {error}; 'lab/deps.sh shells' installs it"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty() && output.status.success(), "{shell}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// zsh finds the script in a folder of its functions and loads it at the first TAB. Each line is completed in a new shell on a
/// terminal of its own. After TAB, Ctrl-A and a command before the line have the shell print it.
#[test]
fn zsh_completes_with_the_script_that_packages_ship() {
    const ASK: &str = r#"
        folder=$(mktemp -d); sqm completions zsh >$folder/_sqm
        zmodload zsh/zpty
        zpty shell 'zsh -f -i'
        zpty -w shell "PS1=; unsetopt beep; fpath=($folder \$fpath); autoload -U compinit; compinit -u -D; print rea''dy"
        zpty -r shell ignored $'*ready\r\n*'
        zpty -w -n shell "$1"$'\t'
        zpty -w shell $'\x01print -r -- comple\'\'ted '
        zpty -r shell found $'*completed *\r\n*'
        zpty -d shell; rm -r $folder
        print -r -- ${${found##*completed }%%[[:space:]]#}"#;
    for (begun, whole) in LINES {
        let found = said("zsh", &["-f", "-o", "extendedglob", "-c", ASK, "zsh", begun]);
        assert_eq!(found.trim_end(), whole, "{begun}");
    }
}

/// fish tells what it would complete.
#[test]
fn fish_completes_with_the_script_that_packages_ship() {
    const ASK: &str = "sqm completions fish | source; complete -C $argv[1]";
    for (begun, whole) in LINES {
        let found = said("fish", &["--no-config", "-c", ASK, begun]);
        let words: Vec<&str> = found.lines().filter_map(|line| line.split('\t').next()).collect();
        let word = whole.rsplit(' ').next().unwrap();
        assert_eq!(words, [word], "{begun}");
    }
}
