#!/bin/sh
# Builds the lab's virtual-time kernel: Debian's kernel source as a User Mode Linux binary with time travel.
#
# Debian's own user-mode-linux package cannot do virtual time (its RAID6 benchmark at boot excludes it), so the
# lab builds one. The result is cached outside the source tree under a name made of the source package's version
# and of kernel.config, so a change of either builds anew. Prints the path of the binary as its last line.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${SQM_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sqm/lab}
tarball=/usr/src/linux-source-6.1.tar.xz

if [ ! -r "$tarball" ]; then
    echo "lab kernel: $tarball is missing: install the Debian package linux-source-6.1 ('make deps' does)" >&2
    exit 1
fi
for tool in flex bison bc xz gcc make; do
    command -v "$tool" >/dev/null || {
        echo "lab kernel: the program '$tool' is missing ('make deps' installs it)" >&2
        exit 1
    }
done

version=$(dpkg-query -W -f '${Version}' linux-source-6.1 2>/dev/null || cksum <"$tarball" | cut -d' ' -f1)
key=$(printf '%s\n' "$version" | cat - "$here/kernel.config" | sha256sum | cut -c1-12)
kernel=$cache/linux-virtual-time-$key

if [ ! -x "$kernel" ]; then
    mkdir -p "$cache"
    # One build at a time: a second caller waits here and then finds the finished binary.
    exec 9>"$cache/build.lock"
    flock 9
fi
if [ ! -x "$kernel" ]; then
    echo "lab kernel: building from linux-source-6.1 $version, once, about 10 minutes on 2 cores" >&2
    work=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT INT TERM
    log=$cache/build.log
    (
        cd "$work"
        tar -xJf "$tarball" --strip-components=1
        make -s ARCH=um defconfig
        # Later words win in Kconfig's own merge: the base first, the lab's needs on top.
        scripts/kconfig/merge_config.sh -s -m .config "$here/kernel.config"
        make -s ARCH=um olddefconfig
        make -s ARCH=um -j"$(nproc)" linux
        strip linux
    ) >"$log" 2>&1 </dev/null || {
        echo "lab kernel: the build failed; its last lines, from $log:" >&2
        tail -n 15 "$log" >&2
        exit 1
    }
    mv "$work/linux" "$kernel.new"
    mv "$kernel.new" "$kernel"
fi
ln -sfn "$(basename "$kernel")" "$cache/linux-virtual-time"
echo "$kernel"
