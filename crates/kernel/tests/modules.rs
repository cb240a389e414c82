//! The modules of this crate use each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each module at the top of the crate, and the others that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    entries
        .map(|entry| entry.expect("an entry").path())
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The modules that a source names after `crate::`, its tests aside.
fn used_modules(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut used = BTreeSet::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for path in line.split("crate::").skip(1) {
            let names = match path.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap_or_default(),
                None => path,
            };
            used.extend(names.split(',').map(|name| {
                let is_of_name = |c: &char| c.is_alphanumeric() || *c == '_';
                name.trim().chars().take_while(is_of_name).collect::<String>()
            }));
        }
    }
    used
}

fn graph() -> Graph {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut graph = Graph::new();
    for file in rust_files(&root) {
        let below = file.strip_prefix(&root).expect("it is below");
        let module = below
            .iter()
            .next()
            .and_then(|name| name.to_str())
            .expect("a name");
        let module = module.trim_end_matches(".rs").to_owned();
        // Modules of tests only.
        let is_test = ["recorded", "recorded.rs", "tests.rs"];
        let is_test = below.iter().any(|part| is_test.iter().any(|name| part == *name));
        if module == "lib" || is_test {
            continue;
        }
        let source = fs::read_to_string(&file).expect("a source");
        let used = used_modules(&source).into_iter().map(|name| match name.as_str() {
            // Re-exported at the top.
            "Error" | "Difference" => "error".to_owned(),
            _ => name,
        });
        graph.entry(module).or_default().extend(used);
    }
    for (module, used) in &mut graph {
        used.remove(module);
    }
    graph
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let mut graph = graph();
    assert!(graph["transaction"].contains("ownership"), "{graph:?}");
    // Modules that use no remaining one are removed, until none is left or only circles are.
    loop {
        let leaves: Vec<String> = graph
            .iter()
            .filter(|(_, used)| used.iter().all(|name| !graph.contains_key(name)))
            .map(|(module, _)| module.clone())
            .collect();
        if leaves.is_empty() {
            break;
        }
        leaves.iter().for_each(|leaf| drop(graph.remove(leaf)));
    }
    assert!(graph.is_empty(), "circles among {graph:#?}");
}
