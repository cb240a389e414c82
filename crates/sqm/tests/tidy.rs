//! Rules of this repository that no compiler checks.

#[path = "support/sources.rs"]
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use sources::{files_with, root, rust_files};

/// The allowed dependencies between crates. ARCHITECTURE.md gives the reasons; they point downwards only.
const ALLOWED: &[(&str, &[&str])] = &[
    ("crates/api", &["sqm-kernel", "sqm-plan"]),
    ("crates/autorate", &["sqm-core"]),
    (
        "crates/configuration",
        &["sqm-core", "sqm-files", "sqm-kernel", "sqm-plan", "sqm-process"],
    ),
    ("crates/core", &[]),
    ("crates/core-tests", &[]),
    (
        "crates/daemon",
        &[
            "sqm-api",
            "sqm-autorate",
            "sqm-configuration",
            "sqm-core",
            "sqm-files",
            "sqm-fleet",
            "sqm-http",
            "sqm-kernel",
            "sqm-measure",
            "sqm-plan",
            "sqm-process",
        ],
    ),
    ("crates/files", &[]),
    ("crates/fleet", &["sqm-core"]),
    ("crates/http", &[]),
    ("crates/kernel", &["sqm-core", "sqm-files", "sqm-plan"]),
    ("crates/measure", &["sqm-autorate", "sqm-core", "sqm-files"]),
    ("crates/plan", &["sqm-core"]),
    ("crates/process", &["sqm-files", "sqm-kernel", "sqm-measure"]),
    ("crates/replay", &["sqm-core", "sqm-measure"]),
    ("crates/sim", &["sqm-autorate", "sqm-core"]),
    (
        "crates/sqm",
        &[
            "sqm-api",
            "sqm-autorate",
            "sqm-configuration",
            "sqm-core",
            "sqm-daemon",
            "sqm-files",
            "sqm-fleet",
            "sqm-kernel",
            "sqm-lab",
            "sqm-measure",
            "sqm-plan",
            "sqm-process",
            "sqm-replay",
            "sqm-sim",
            "sqm-tune",
            "sqm-web",
        ],
    ),
    (
        "crates/tune",
        &[
            "sqm-configuration",
            "sqm-core",
            "sqm-files",
            "sqm-kernel",
            "sqm-measure",
            "sqm-plan",
            "sqm-process",
        ],
    ),
    (
        "crates/web",
        &[
            "sqm-api",
            "sqm-configuration",
            "sqm-core",
            "sqm-files",
            "sqm-http",
            "sqm-kernel",
            "sqm-measure",
            "sqm-plan",
            "sqm-process",
        ],
    ),
    ("lab", &[]),
];

#[test]
fn dependencies_point_down() {
    let mut wrong = Vec::new();
    for member in members() {
        let manifest =
            fs::read_to_string(root().join(&member).join("Cargo.toml")).expect("a member has a manifest");
        let allowed = ALLOWED.iter().find(|(folder, _)| *folder == member);
        let Some((_, allowed)) = allowed else {
            wrong.push(format!("{member} is a new crate: give it its place in ALLOWED"));
            continue;
        };
        for used in internal_dependencies(&manifest) {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("{member} must not depend on {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn core_and_autorate_know_no_std_and_depend_on_nothing_else() {
    for (name, expected) in [("core", ""), ("autorate", "sqm-core.workspace = true")] {
        let folder = root().join("crates").join(name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a crate has a manifest");
        let dependencies = manifest
            .split("[dependencies]")
            .nth(1)
            .expect("the section stands there");
        let dependencies = dependencies.split('[').next().unwrap_or_default().trim();
        assert_eq!(dependencies, expected, "{name}");
        let lib = fs::read_to_string(folder.join("src/lib.rs")).expect("a crate has a lib.rs");
        assert!(
            lib.contains("#![no_std]") && lib.contains("#![forbid(unsafe_code)]"),
            "{name}"
        );
    }
}

/// The command line uses the other modules of the program; they do not use it.
#[test]
fn no_part_of_the_program_knows_its_command_line() {
    let source = root().join("crates/sqm/src");
    let mut found = Vec::new();
    for file in rust_files(&source) {
        let below = file.strip_prefix(&source).expect("it is below");
        let is_command_line =
            below.starts_with("cli") || below == Path::new("cli.rs") || below == Path::new("lib.rs");
        let text = fs::read_to_string(&file).expect("a source file is text");
        if !is_command_line && text.contains("crate::cli") {
            found.push(below.display().to_string());
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The web server runs without privileges and asks the daemon for every change. It reads the kernel's state and never
/// changes it.
#[test]
fn the_page_does_not_change_the_kernel() {
    const CHANGES: [&str; 5] = ["execute", "snapshot", "state", "stop", "transaction"];
    for file in rust_files(&root().join("crates/web/src")) {
        let text = fs::read_to_string(&file).expect("a source file is text");
        let uses = text.lines().filter(|line| line.contains("sqm_kernel::"));
        for line in uses {
            let has_change = CHANGES.iter().any(|change| line.contains(change));
            assert!(!has_change, "{}: {line}", file.display());
        }
    }
}

/// CONTRIBUTING's third rule of plain English: such a beginning leaves out who acts.
#[test]
fn no_comment_begins_without_its_subject() {
    const BEGINNINGS: [&str; 7] = [
        "The same ",
        "Of ",
        "What ",
        "Whether ",
        "So many ",
        "So long ",
        "So much ",
    ];
    let mut found = Vec::new();
    for file in rust_files(&root()) {
        let text = fs::read_to_string(&file).expect("a source file is text");
        for (number, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let words = comment.trim_start_matches(['/', '!']).trim_start();
            if BEGINNINGS.iter().any(|beginning| words.starts_with(beginning)) {
                found.push(format!("{}:{}: {words}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// In `tc` the word means bytes per second, elsewhere bits per second. No identifier may contain it.
#[test]
fn no_unit_is_ambiguous() {
    const FORBIDDEN: &str = "bps";
    let mut found = Vec::new();
    for file in rust_files(&root()) {
        let text = fs::read_to_string(&file).expect("a source file is text");
        for (number, line) in text.lines().enumerate() {
            // Names in text, such as the unit of `tc`, stand in quotes, which are left out.
            let code = line.split(['"', '\'']).step_by(2).collect::<String>();
            let code = code.split("//").next().unwrap_or_default();
            let names = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if names
                .into_iter()
                .any(|name| name.split('_').any(|part| part == FORBIDDEN))
            {
                found.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "names with {FORBIDDEN}: {found:?}");
}

/// The kernel crate does the work of `tc` and `ip` itself: it searches no path, forks no process, and parses no
/// output.
#[test]
fn the_kernel_crate_runs_no_command() {
    for file in rust_files(&root().join("crates/kernel/src")) {
        let text = fs::read_to_string(&file).expect("a source file is text");
        assert!(!text.contains("process::Command"), "{}", file.display());
    }
}

/// Files that are kept, or written for other users, go through `sqm_files`. Only that crate deals with links, FIFOs
/// and concurrent writers.
#[test]
fn only_one_crate_writes_files() {
    const WRITERS: [&str; 6] = [
        "File::create",
        "fs::write(",
        "OpenOptions",
        "File::options()",
        "fs::copy(",
        "fs::rename(",
    ];
    /// `build.rs` runs at compile time, `child.rs` writes below `/proc`, and `output_file.rs` opens the pipe or the
    /// device that a user has named.
    const EXCEPTIONS: [&str; 3] = [
        "crates/web/build.rs",
        "crates/process/src/child.rs",
        "crates/process/src/output_file.rs",
    ];
    let mut found = Vec::new();
    for file in rust_files(&root().join("crates")) {
        let name = file
            .strip_prefix(root())
            .expect("it is below")
            .display()
            .to_string();
        let parts: Vec<&str> = name.split('/').collect();
        let is_test = parts
            .iter()
            .any(|part| ["tests", "tests.rs", "benches"].contains(part));
        if is_test || parts[1] == "files" || EXCEPTIONS.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file is text");
        // Tests come last in a file, and may write as they like.
        let code = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if WRITERS.iter().any(|writer| line.contains(writer)) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "use sqm_files:\n{}", found.join("\n"));
}

/// A configuration is parsed and edited in one crate, so that every writer keeps the text as it is but for its own change, and
/// every reader has the same errors.
#[test]
fn only_one_crate_parses_and_edits_the_configuration() {
    const PARSERS: [&str; 4] = [
        "uci::Document",
        "sqm_plan::load",
        "Configuration::parse",
        "uci::quote",
    ];
    let mut found = Vec::new();
    for file in rust_files(&root().join("crates")) {
        let name = file.strip_prefix(root()).expect("it is below");
        let parts: Vec<&str> = name.iter().filter_map(|part| part.to_str()).collect();
        let is_test = ["tests", "tests.rs", "recorded.rs", "benches"];
        if ["plan", "configuration"].contains(&parts[1]) || parts.iter().any(|part| is_test.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file is text");
        let code = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if PARSERS.iter().any(|parser| line.contains(parser)) {
                found.push(format!("{}:{}: {}", name.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "use sqm_configuration:\n{}", found.join("\n"));
}

/// The last column of the tables of promises names the tests that show them.
#[test]
fn the_tests_that_documents_name_are_there() {
    /// Names that the document explains itself.
    const EXPLAINED: [&str; 2] = ["all_configurations", "as_sqm_scripts"];
    let code: String = rust_files(&root().join("crates"))
        .into_iter()
        .map(|file| fs::read_to_string(file).expect("a source file can be read"))
        .collect();
    // A test is a function or a snapshot. The macro of a snapshot makes the function, or the snapshot's name is a
    // string.
    let tests: BTreeSet<&str> = ["fn ", "snapshot!("]
        .into_iter()
        .flat_map(|before| code.split(before).skip(1))
        .filter_map(|rest| {
            let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '"');
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
        })
        .collect();
    let (mut named, mut missing) = (0, Vec::new());
    for document in [
        "docs/reference/parity.md",
        "docs/reference/differences.md",
        "docs/results/promises.md",
    ] {
        let text = fs::read_to_string(root().join(document)).expect("the document is there");
        let rows = text.lines().filter(|line| line.starts_with('|'));
        for cell in rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next()) {
            for name in cell.split('`').skip(1).step_by(2) {
                let is_name = name.len() > 7 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if !is_name || EXPLAINED.contains(&name) {
                    continue;
                }
                named += 1;
                if !tests.contains(name) {
                    missing.push(format!("{document}: no test {name}"));
                }
            }
        }
    }
    assert!(
        missing.is_empty() && named > 80,
        "{named} named\n{}",
        missing.join("\n")
    );
}

/// Each relative link in a document leads to a file, and its anchor to a heading there. The changelog is exempt,
/// because it describes files as they were.
#[test]
fn links_in_documents_lead_somewhere() {
    let (mut links, mut broken) = (0, Vec::new());
    for file in files_with(&root(), &["md"]) {
        if file.file_name().is_some_and(|name| name == "CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a document is text");
        for target in link_targets(&text) {
            links += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = file.parent().expect("a file is in a folder");
            let linked = if path.is_empty() {
                file.clone()
            } else {
                folder.join(path)
            };
            let leads_somewhere = match anchor {
                "" => linked.exists(),
                anchor => fs::read_to_string(&linked).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !leads_somewhere {
                broken.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(
        broken.is_empty() && links > 60,
        "{links} links\n{}",
        broken.join("\n")
    );
}

/// Sources and messages name documents by their path from the root of the repository.
#[test]
fn documents_that_are_named_by_path_exist() {
    const KINDS: [&str; 10] = [
        "rs", "md", "toml", "sh", "ts", "tsx", "mjs", "yaml", "yml", "service",
    ];
    let mut missing = Vec::new();
    for file in files_with(&root(), &KINDS) {
        if file.file_name().is_some_and(|name| name == "CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        for path in text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c))) {
            let path = path.trim_end_matches(['.', '/']);
            if path.starts_with("docs/") && !root().join(path).exists() {
                missing.push(format!("{}: {path}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Documents name sources by their path from the root of the repository. `NAME` is a placeholder for a name that the
/// reader chooses.
#[test]
fn sources_that_documents_name_by_path_exist() {
    const FOLDERS: [&str; 6] = [
        "bench/",
        "crates/",
        "fuzz/",
        "packaging/",
        "web/src/",
        "web/test/",
    ];
    let (mut named, mut missing) = (0, Vec::new());
    for file in files_with(&root(), &["md"]) {
        if file.file_name().is_some_and(|name| name == "CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a document is text");
        // Paths stand in backquotes. A command that follows the path is cut off.
        for quoted in text.split('`').skip(1).step_by(2) {
            let path = quoted.split(' ').next().unwrap_or_default().trim_end_matches('/');
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder))
                && path
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
            if !is_path || path.contains("NAME") {
                continue;
            }
            named += 1;
            if !root().join(path).exists() {
                missing.push(format!("{}: {path}", file.display()));
            }
        }
    }
    assert!(
        missing.is_empty() && named > 40,
        "{named} named\n{}",
        missing.join("\n")
    );
}

/// The reference lists every command.
#[test]
fn the_reference_names_every_command() {
    let reference =
        fs::read_to_string(root().join("docs/reference/commands.md")).expect("the document is there");
    let help = Command::new(env!("CARGO_BIN_EXE_sqm"))
        .arg("--help")
        .output()
        .expect("the program starts");
    let help = String::from_utf8(help.stdout).expect("help is text");
    let (commands, _) = help
        .split_once("\nOptions:\n")
        .expect("it lists commands, then options");
    let commands: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split(' ').next())
        .filter(|command| *command != "help")
        .collect();
    let missing: Vec<&&str> = commands
        .iter()
        .filter(|command| !reference.contains(&format!("`sqm {command}")))
        .collect();
    assert!(
        missing.is_empty() && commands.len() > 15,
        "{commands:?}: no word about {missing:?}"
    );
}

/// A test that is ignored is forgotten: the long ones are in tests/nightly, or try more cases with `SQM_NIGHTLY`.
#[test]
fn no_test_is_ignored() {
    // In two pieces, so that this file does not contain it.
    let attribute = ["#[", "ignore"].concat();
    for file in rust_files(&root()) {
        let source = fs::read_to_string(&file).expect("a source is text");
        assert!(
            !source.contains(&attribute),
            "{} has an ignored test",
            file.display()
        );
    }
}

/// An example in the documentation of a crate without doctests would never run. A block of `text` is none.
#[test]
fn examples_in_documentation_are_run() {
    let mut without = 0;
    for member in members() {
        let folder = root().join(&member);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        // The sources of crates/core-tests are those of crates/core, which has doctests.
        if !manifest.contains("doctest = false") || member == "crates/core-tests" {
            continue;
        }
        without += 1;
        for file in rust_files(&folder.join("src")) {
            let source = fs::read_to_string(&file).expect("a source is text");
            let fences = source
                .lines()
                .map(str::trim)
                .filter(|line| (line.starts_with("///") || line.starts_with("//!")) && line.contains("```"));
            // Every other fence ends a block.
            let example = fences.step_by(2).find(|fence| !fence.ends_with("```text"));
            assert!(
                example.is_none(),
                "{} has an example: remove `doctest = false` from {member}/Cargo.toml",
                file.display()
            );
        }
    }
    assert!(without > 0);
}

/// Routers have processors without 64-bit atomics, for which `portable_atomic` has a substitute. `make nightly` compiles for one.
#[test]
fn atomics_of_64_bits_are_portable() {
    for file in rust_files(&root().join("crates")) {
        let source = fs::read_to_string(&file).expect("a source is text");
        let wrong = source.split(';').find(|statement| {
            statement.contains("std::sync::atomic")
                && ["AtomicU64", "AtomicI64"]
                    .iter()
                    .any(|name| statement.contains(name))
        });
        assert!(
            wrong.is_none() || file.ends_with("tests/tidy.rs"),
            "{}: take it from portable_atomic:{}",
            file.display(),
            wrong.unwrap_or_default()
        );
    }
}

/// Each finding has a row in the guide's table of symptoms: its identifier begins a string literal of findings.rs that is an
/// `id`, or one of the words of an expression that is one.
#[test]
fn the_guide_names_every_finding_of_the_doctor() {
    let source = fs::read_to_string(root().join("crates/sqm/src/doctor/findings.rs")).expect("the findings");
    let guide = fs::read_to_string(root().join("docs/guide/trouble.md")).expect("the guide");
    let mut known = 0;
    for id in source.split(" id: ").skip(1) {
        let expression = id.split(".to_owned()").next().unwrap_or_default();
        for word in expression.split('"').skip(1).step_by(2) {
            assert!(
                guide.contains(&format!("`{word}`")),
                "the guide has no row for {word}"
            );
            known += 1;
        }
    }
    assert!(known >= 17, "{known} findings");
}

/// The reference lists every metric.
#[test]
fn the_reference_names_every_metric() {
    let reference =
        fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the document is there");
    let sources = rust_files(&root().join("crates"));
    let metrics = sources
        .iter()
        .find(|file| file.ends_with("daemon/metrics.rs") || file.ends_with("src/metrics.rs"));
    let metrics =
        fs::read_to_string(metrics.expect("one file has the metrics")).expect("a source file is text");
    let names: Vec<&str> = metrics
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|literal| {
            literal.starts_with("sqm_") && literal.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        })
        .collect();
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| !reference.contains(&format!("`{name}")))
        .collect();
    assert!(
        missing.is_empty() && names.len() > 40,
        "{} metrics, no word about {missing:?}",
        names.len()
    );
}

/// The targets of links in a document, except links to other sites and those in code blocks.
fn link_targets(text: &str) -> Vec<&str> {
    let prose = text.split("\n```").step_by(2);
    let targets = prose.flat_map(|prose| prose.split("](").skip(1));
    targets
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://"))
        .collect()
}

/// The anchors that a Git forge gives to the headings of a document: lower case, without punctuation, hyphens for
/// spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = text.split("\n```").step_by(2);
    let headings = prose
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            heading
                .replace(' ', "-")
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
                .collect()
        })
        .collect()
}

/// The folders of the workspace's crates, according to `members = ["crates/*", "lab"]`.
fn members() -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    assert!(manifest.contains("members = [\"crates/*\", \"lab\"]"));
    let crates = fs::read_dir(root().join("crates")).expect("the folder is there");
    crates
        .map(|entry| entry.expect("the folder can be read").file_name())
        .map(|name| format!("crates/{}", name.to_string_lossy()))
        .chain(["lab".to_owned()])
        .collect()
}

/// Names of workspace crates among the normal dependencies.
fn internal_dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| name.starts_with("sqm-"))
        .map(str::to_owned)
        .collect()
}
