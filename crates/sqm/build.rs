//! Links the debug build of the program at a fixed address.
//!
//! The lab's tests start it thousands of times in a guest, where each page that the dynamic linker relocates costs a page
//! fault. A debug build has 130,000 relocations; without them a start in a guest takes half the time.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A static program of musl relocates itself as it starts, and crashes if it was not linked for that.
    let is_gnu = std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    if is_gnu && std::env::var("PROFILE").as_deref() == Ok("debug") {
        println!("cargo:rustc-link-arg-bin=sqm=-no-pie");
    }
}
