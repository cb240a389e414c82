#!/bin/sh
# Checks that every crate of the program for routers compiles for a processor with 32 bits, the other order of bytes and no 64-bit
# atomics: MIPS 24Kc, big endian. It compiles up to metadata only, so it needs no linker or C compiler for that processor, but the
# source of the standard library: the one of rustup, or Debian's compiler with its source.
# Usage: check-32-bit.sh [FEATURES]...; `router` without arguments. An empty word is the program without any feature, which only shapes.
set -eu
[ $# -gt 0 ] || set -- router

target=mips-unknown-linux-musl
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sqm-router
has_std_source() { [ -e "$("$1" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; }

has_std_source rustc || rustup component add rust-src >/dev/null 2>&1 || true
if ! has_std_source rustc; then
    "$(dirname "$0")"/../../lab/deps.sh rust
    PATH="/usr/bin:$PATH"
    export PATH
fi
# A stable compiler accepts -Z with RUSTC_BOOTSTRAP. The folder is kept, so that only the first check compiles the standard library.
for features in "$@"; do
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-D warnings" cargo check --locked -Zbuild-std=std,panic_abort --target $target \
        --target-dir "$cache/check" --no-default-features --features "$features" -p sqm --bin sqm
done
