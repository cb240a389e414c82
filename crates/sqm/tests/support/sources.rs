//! The files of the repository, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust sources below a folder.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files_with(folder, &["rs"])
}

/// Files below a folder with one of these extensions. Generated files and installed packages are left out.
pub(crate) fn files_with(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    const GENERATED: [&str; 5] = ["target", "node_modules", "dist", "test-out", "corpus"];
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder can be listed").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !GENERATED.contains(&name.as_str()) && !name.starts_with('.') {
            files.extend(files_with(&path, extensions));
        } else if path
            .extension()
            .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
        {
            files.push(path);
        }
    }
    files
}
