#!/bin/sh
# Builds the program for routers: static, optimised for size, with the feature `router`. Prints its size.
# Usage: build-router.sh [TARGET] [FEATURES]; TARGET is one of Rust's names, such as aarch64-unknown-linux-musl (default: this
# machine's). FEATURES is `router`, or `router,fleet`, whose program is in a folder of its own.
#
# The standard library is compiled with the program where its source is there (rustup component rust-src): that is smaller, and
# the only way for targets that Rust does not ship it for (MIPS). A linker and libc for other processors come from the Python
# packages ziglang and cargo-zigbuild, which are installed into a folder of their own.
set -eu

target=${1:-$(uname -m)-unknown-linux-musl}
features=${2:-router}
target_dir=${CARGO_TARGET_DIR:-target}/openwrt
[ "$features" = router ] || target_dir=$target_dir-${features#router,}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sqm-router
has_std_source() { [ -e "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; }
lld() { "$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-lld" -flavor gnu "$@"; }
has_std() { [ -e "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; }

has_std_source || rustup component add rust-src >/dev/null 2>&1 || true
has_std || rustup target add "$target" >/dev/null 2>&1 || true
if ! has_std_source && ! has_std; then
    echo "there is no standard library for $target: 'rustup target add $target' or 'rustup component add rust-src' adds it" >&2
    exit 1
fi

flags="-C relocation-model=static -C force-unwind-tables=no"
case $target in
    # rustix passes 64-bit times to ppoll, which is the 32-bit one of musl before 1.2 unless libc is told otherwise: waits would end
    # at once.
    # Code that depends on its position calls functions without register t9, in which the dlsym of musl expects its own address: statx,
    # which is looked up by it, would end the program. The program itself stays at a fixed position.
    mips-* | mipsel-*) flags="$flags --cfg libc_unstable_musl_v1_2 -C relocation-model=pic -C link-arg=-no-pie" ;;
    armv7-*) flags="$flags -C link-self-contained=no" ;;
esac
std=
if has_std_source; then
    # A stable compiler accepts -Z with this.
    export RUSTC_BOOTSTRAP=1
    # A panic ends the program without a message: the texts and the unwinder take about 80 kB.
    flags="$flags -Zlocation-detail=none -Zunstable-options -C panic=immediate-abort"
    std="-Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size"
fi

build=build
if has_std; then
    # Rust ships libc and the linker for this target. The linker merges equal functions.
    flags="$flags -C linker=rust-lld -C linker-flavor=ld.lld -C link-arg=--icf=all"
    # It also puts similar functions next to each other, which saves 1 % of the compressed program; that of LLVM 21 (Rust 1.91) can.
    case $(lld --help) in *--bp-compression-sort=*) flags="$flags -C link-arg=--bp-compression-sort=both" ;; esac
else
    if ! [ -x "$cache/bin/cargo-zigbuild" ]; then
        python3 -m venv "$cache"
        "$cache/bin/pip" install --quiet ziglang==0.17.1 cargo-zigbuild==0.24.0
    fi
    PATH="$cache/bin:$PATH"
    export PATH
    build=zigbuild
fi

# Build scripts run on this machine, so the options of the target must not reach them: --target keeps them apart.
# shellcheck disable=SC2086  # one word for each option
RUSTFLAGS="$flags" cargo $build $std --locked --profile router --no-default-features --features "$features" -p sqm --bin sqm \
    --target "$target" --target-dir "$target_dir"
program=$target_dir/$target/router/sqm
echo "$program: $(stat -c %s "$program") bytes, $(xz -9e -c "$program" | wc -c) as xz"
# OpenWrt's images compress programs for these processors with a filter for addresses of branches (include/image.mk).
case $target in
    x86_64-*) filter=--x86 ;;
    armv7-*) filter=--arm ;;
    *) exit 0 ;;
esac
echo "in an image: $(xz $filter --lzma2=preset=9e -c "$program" | wc -c) bytes"
