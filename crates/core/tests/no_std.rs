//! The crate does without the standard library: a program with a panic handler of its own builds on it, which the
//! compiler refuses where a second handler, the standard library's, comes along.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Two of these in one program are an error.
const PANIC_HANDLER: &str = "#![no_std]
extern crate sqm_core;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
";

/// A target without a standard library. Where it is installed the crate is compiled for it as well.
const BARE: &str = "x86_64-unknown-none";

#[test]
fn the_core_needs_no_standard_library() {
    let folder = TempDir::new().unwrap();
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let output = built_upon(&core, folder.path(), None);
    assert!(output.status.success(), "{}", text(&output));
    if is_installed(BARE) {
        let output = built_upon(&core, folder.path(), Some(BARE));
        assert!(output.status.success(), "{BARE}: {}", text(&output));
    }
}

#[test]
fn the_standard_library_would_be_noticed() {
    let folder = TempDir::new().unwrap();
    let with_clock = folder.path().join("with_clock.rs");
    std::fs::write(
        &with_clock,
        "pub fn now() -> std::time::Instant { std::time::Instant::now() }",
    )
    .unwrap();
    let output = built_upon(&with_clock, folder.path(), None);
    assert!(!output.status.success());
    assert!(
        text(&output).contains("the lang item is first defined in crate `std`"),
        "{}",
        text(&output)
    );
}

/// Compiles the library at `source` as `sqm_core`, and a program without the standard library on top of it.
fn built_upon(source: &Path, folder: &Path, target: Option<&str>) -> Output {
    let compile = |name: &str, source: &Path, more: &[&str]| -> (PathBuf, Output) {
        let metadata = folder.join(format!("lib{name}.rmeta"));
        let output = Command::new(rustc())
            .args([
                "--edition",
                "2024",
                "--crate-type",
                "rlib",
                "--emit",
                "metadata",
                "--crate-name",
                name,
            ])
            .args(target.map(|target| format!("--target={target}")))
            .args(more)
            .arg("-o")
            .arg(&metadata)
            .arg(source)
            .output()
            .unwrap();
        (metadata, output)
    };
    let (library, output) = compile("sqm_core", source, &[]);
    if !output.status.success() {
        return output;
    }
    let program = folder.join("program.rs");
    std::fs::write(&program, PANIC_HANDLER).unwrap();
    let library = format!("sqm_core={}", library.display());
    compile("program", &program, &["--extern", &library]).1
}

fn is_installed(target: &str) -> bool {
    let output = Command::new(rustc())
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .unwrap();
    Path::new(text_of(&output.stdout).trim()).is_dir()
}

fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

fn text(output: &Output) -> String {
    text_of(&output.stderr)
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
