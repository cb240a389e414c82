//! Packs the built page (`make web`) into the program. Without one the program is built all the same, and says so.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let page = web.join("dist");
    // A folder that does not exist yet cannot be watched, but its parent can.
    for watched in [&page, &web] {
        if watched.is_dir() {
            println!("cargo::rerun-if-changed={}", watched.display());
            break;
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let mut table = "[\n".to_owned();
    for (number, file) in files(&page).iter().enumerate() {
        let packed = out.join(format!("{number}.gz"));
        let mut packing = GzEncoder::new(Vec::new(), Compression::best());
        let bytes = fs::read(file).expect("a file of the page can be read");
        packing.write_all(&bytes).expect("memory takes all");
        fs::write(&packed, packing.finish().expect("memory takes all")).expect("the output can be written");
        let path = file.strip_prefix(&page).expect("it was found there");
        let path = path.to_str().expect("names of the page are ASCII");
        writeln!(table, "(\"/{path}\", include_bytes!(\"{}\")),", packed.display()).expect("text grows");
    }
    table.push(']');
    fs::write(out.join("page.rs"), table).expect("the output can be written");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
