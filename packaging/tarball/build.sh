#!/bin/sh
# Packs a statically linked program into a tarball with an install script.
# Usage: build.sh PROGRAM FOLDER  (prints the tarball's file name, which is put into FOLDER)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=$1
out=$2
for tool in file strip tar gzip; do
    command -v "$tool" >/dev/null || {
        echo "tarball: the program '$tool' is missing (Debian packages file, binutils, tar and gzip)" >&2
        exit 1
    }
done
file "$program" | grep -q 'static-pie linked\|statically linked' || {
    echo "tarball: $program is not statically linked, so it would not start on other distributions; build it with 'make tarball'" >&2
    exit 1
}
version=$("$program" --version) || {
    echo "tarball: $program does not run on this machine" >&2
    exit 1
}
version=${version#sqm }
name=sqm-$version-linux-$(uname -m)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
umask 022
root=$work/$name
install -D -m 755 -s "$program" "$root/bin/sqm"
install -D -m 755 "$here/install.sh" "$root/install.sh"
for unit in sqm.service sqm-serve.service sqm-web.service; do
    install -D -m 644 "$here/../$unit" "$root/systemd/$unit"
done
install -D -m 644 "$here/../sqm.preset" "$root/systemd/80-sqm.preset"
install -m 644 "$here/../../README.md" "$here/../../CHANGELOG.md" "$here/../../LICENSE-MIT" "$here/../../LICENSE-APACHE" "$root"
mkdir -p "$root/share/man/man8" "$root/share/man/man5" "$root/share/bash-completion/completions" "$root/share/zsh/site-functions" \
    "$root/share/fish/vendor_completions.d"
"$program" manual "$root/share/man/man8"
mv "$root"/share/man/man8/*.5 "$root/share/man/man5"
"$program" completions bash >"$root/share/bash-completion/completions/sqm"
"$program" completions zsh >"$root/share/zsh/site-functions/_sqm"
"$program" completions fish >"$root/share/fish/vendor_completions.d/sqm.fish"

mkdir -p "$out"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$work" -czf "$out/$name.tar.gz" "$name"
echo "$out/$name.tar.gz"
