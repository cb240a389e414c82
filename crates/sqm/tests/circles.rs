//! The modules at the top of each crate use each other in one direction only. A circle of modules can be neither read nor tested
//! one module at a time.

#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sources::{root, rust_files};

/// Each module at the top of a crate, and the others that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let mut circles = Vec::new();
    let mut modules = 0;
    for source in source_folders() {
        let graph = graph(&source);
        modules += graph.len();
        let circle = circles_of(graph);
        if !circle.is_empty() {
            circles.push(format!("{}: {circle:?}", source.display()));
        }
    }
    assert!(circles.is_empty(), "circles:\n{}", circles.join("\n"));
    assert!(modules > 200, "only {modules} modules were found");
}

#[test]
fn a_circle_is_found() {
    let graph = |edges: &[(&str, &[&str])]| -> Graph {
        let used = |used: &[&str]| used.iter().map(ToString::to_string).collect();
        edges
            .iter()
            .map(|(module, uses)| ((*module).to_owned(), used(uses)))
            .collect()
    };
    assert!(circles_of(graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    let left = circles_of(graph(&[
        ("a", &["b"]),
        ("b", &["c"]),
        ("c", &["b"]),
        ("d", &["d2"]),
    ]));
    assert!(left.contains_key("b") && left.contains_key("c") && !left.contains_key("d"));
}

#[test]
fn the_modules_that_a_source_names_are_found() {
    let names = |source: &str, depth| names_at_the_top(source, depth).into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::a::B;\nlet x = crate::c::d();", 0), ["a", "c"]);
    assert_eq!(names("use crate::{\n    a::{B, C},\n    d,\n};", 0), ["a", "d"]);
    assert_eq!(names("use super::a;\nuse super::super::b;", 0), ["a"]);
    assert_eq!(
        names("use super::a;\nuse super::super::{b, c::D};", 1),
        ["b", "c"]
    );
    assert_eq!(
        names("// crate::a\n#[cfg(test)]\nmod tests {\n use crate::b;\n}", 0),
        [""; 0]
    );
}

/// The folders of sources: one for each library, and one for each program of several files.
fn source_folders() -> Vec<PathBuf> {
    let mut sources = vec![root().join("lab/src")];
    for folder in entries(&root().join("crates")) {
        let source = folder.join("src");
        // crates/core-tests has the sources of crates/core.
        if !source.exists() {
            continue;
        }
        let bin = source.join("bin");
        if bin.exists() {
            sources.extend(entries(&bin).into_iter().filter(|program| program.is_dir()));
        }
        sources.push(source);
    }
    sources
}

fn graph(source: &Path) -> Graph {
    let exported = exports(source);
    let mut graph = Graph::new();
    for file in rust_files(source) {
        let below = file.strip_prefix(source).expect("it is below");
        let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
        let module = parts[0].trim_end_matches(".rs");
        // Modules of tests only.
        let is_test = ["recorded", "recorded.rs", "tests", "tests.rs"];
        if ["lib", "main", "bin"].contains(&module) || parts.iter().any(|part| is_test.contains(part)) {
            continue;
        }
        let code = fs::read_to_string(&file).expect("a source is text");
        let used = names_at_the_top(&code, parts.len() - 1);
        let used = used
            .into_iter()
            .map(|name| exported.get(&name).cloned().unwrap_or(name));
        graph.entry(module.to_owned()).or_default().extend(used);
    }
    for (module, used) in &mut graph {
        used.remove(module);
    }
    graph
}

/// The names that the top of a crate exports from its modules, each with its module.
fn exports(source: &Path) -> BTreeMap<String, String> {
    let Ok(lib) = fs::read_to_string(source.join("lib.rs")) else {
        return BTreeMap::new();
    };
    let statements = lib
        .split("use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next());
    statements
        .filter_map(|statement| statement.split_once("::"))
        .flat_map(|(module, names)| {
            let names = names.split(|c: char| !is_of_name(c));
            names.map(|name| (name.to_owned(), module.to_owned()))
        })
        .collect()
}

/// Removes modules that use no other one from a graph, again and again, and returns the rest: nothing, or circles and their users.
fn circles_of(mut graph: Graph) -> Graph {
    loop {
        let ends: Vec<String> = graph
            .iter()
            .filter(|(_, used)| used.iter().all(|name| !graph.contains_key(name)))
            .map(|(module, _)| module.clone())
            .collect();
        if ends.is_empty() {
            return graph;
        }
        ends.iter().for_each(|end| drop(graph.remove(end)));
    }
}

/// The names at the top of the crate that a source uses, its tests aside. `depth` is the number of folders above its file: as many
/// times, and once more, `super::` leads from the file to the top.
fn names_at_the_top(source: &str, depth: usize) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.map(|line| format!("{line}\n")).collect();
    let to_the_top = "super::".repeat(depth + 1);
    let mut names = BTreeSet::new();
    for prefix in ["crate::", &to_the_top] {
        for (at, _) in code.match_indices(prefix) {
            let is_whole = !code[..at].ends_with(|c: char| is_of_name(c) || c == ':');
            let rest = &code[at + prefix.len()..];
            if is_whole && !rest.starts_with("super::") {
                names.extend(first_names(rest));
            }
        }
    }
    names
}

/// The first name of a path, or of each path in a list in braces.
fn first_names(path: &str) -> Vec<String> {
    let Some(list) = path.strip_prefix('{') else {
        return vec![path.chars().take_while(|c| is_of_name(*c)).collect()];
    };
    let (mut names, mut depth, mut name, mut is_first) = (Vec::new(), 0, String::new(), true);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(std::mem::take(&mut name));
                is_first = true;
            }
            c if depth == 0 && is_first && is_of_name(c) => name.push(c),
            ':' | ' ' if depth == 0 && !name.is_empty() => is_first = false,
            _ => {}
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
