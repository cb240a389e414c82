#!/bin/sh
# Builds the lab's virtual-time kernel: Debian's kernel source as a User Mode Linux binary with time travel.
#
# Debian's own user-mode-linux package cannot do virtual time (its RAID6 benchmark at boot excludes it), so the
# lab builds one. The result is cached outside the source tree under a name made of the source package's version,
# kernel.config, uml.patch and this script, so a change of any builds anew. Prints the path of the binary as its last line.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${SQM_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sqm/lab}
tarball=/usr/src/linux-source-6.1.tar.xz

if [ ! -r "$tarball" ]; then
    echo "lab kernel: $tarball is missing: install the Debian package linux-source-6.1 (lab/deps.sh build does)" >&2
    exit 1
fi
for tool in flex bison bc xz gcc make patch; do
    command -v "$tool" >/dev/null || {
        echo "lab kernel: the program '$tool' is missing (lab/deps.sh build installs it)" >&2
        exit 1
    }
done

version=$(dpkg-query -W -f '${Version}' linux-source-6.1 2>/dev/null || cksum <"$tarball" | cut -d' ' -f1)
key=$(printf '%s\n' "$version" | cat - "$here/kernel.config" "$here/uml.patch" "$0" | sha256sum | cut -c1-12)
kernel=$cache/linux-virtual-time-$key

if [ ! -x "$kernel" ]; then
    mkdir -p "$cache"
    # One build at a time: a second caller waits here and then finds the finished binary.
    exec 9>"$cache/build.lock"
    flock 9
fi
if [ ! -x "$kernel" ]; then
    echo "lab kernel: building from linux-source-6.1 $version, once, about 10 minutes on 2 cores" >&2
    # What a killed build left behind; nobody else builds while this one holds the lock.
    rm -rf "$cache"/build.??????
    work=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    log=$cache/build.log
    # A shell of its own: in a condition, "set -e" would be off.
    sh -eu -s "$work" "$tarball" "$here/kernel.config" "$here/uml.patch" >"$log" 2>&1 <<'STEPS' || {
        cd "$1"
        tar -xJf "$2" --strip-components=1
        patch -p1 <"$4"
        make -s ARCH=um defconfig
        # Later words win in Kconfig's own merge: the base first, the lab's needs on top.
        ARCH=um scripts/kconfig/merge_config.sh -m .config "$3"
        make -s ARCH=um olddefconfig
        if grep '=y$' "$3" | grep -vxF -f .config; then
            echo "Kconfig dropped these options of $3"
            exit 1
        fi
        make -s ARCH=um -j"$(nproc)" linux
        strip linux
STEPS
        echo "lab kernel: the build failed; its last lines, from $log:" >&2
        tail -n 15 "$log" >&2
        exit 1
    }
    mv "$work/linux" "$kernel.new"
    mv "$kernel.new" "$kernel"
fi
ln -sfn "$(basename "$kernel")" "$cache/linux-virtual-time"
echo "$kernel"
