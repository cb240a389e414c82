#!/bin/sh
# Builds the Debian package from a built program.
# Usage: build.sh PROGRAM FOLDER [MIB]  (prints the package's file name, which is put into FOLDER; MIB is the largest size of the program)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=$1
out=$2
limit=${3:-15}
for tool in dpkg-deb strip gzip; do
    command -v "$tool" >/dev/null || {
        echo "package: the program '$tool' is missing (Debian packages dpkg and binutils)" >&2
        exit 1
    }
done
version=$("$program" --version) || {
    echo "package: $program does not run on this machine" >&2
    exit 1
}
version=${version#sqm }
architecture=$(dpkg --print-architecture)
# The oldest C library that has every symbol of the program.
libc=$(objdump -T "$program" | sed -n 's/.*(\?GLIBC_\([0-9.]*\))\?.*/\1/p' | sort -uV | tail -n 1)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 130' HUP INT TERM
umask 022
chmod 755 "$root"
install -D -m 755 -s "$program" "$root/usr/bin/sqm"
# Growth is to be noticed: each process maps the program. Routers with 16 MiB of flash take the one that only shapes (make size).
size=$(stat -c %s "$root/usr/bin/sqm")
if [ "$size" -gt $((limit << 20)) ]; then
    echo "package: the program has $size bytes stripped, more than $limit MiB" >&2
    exit 1
fi
echo "package: the program has $size bytes stripped" >&2
install -D -m 755 -s "$(dirname "$program")/sqm-lab" "$root/usr/bin/sqm-lab"
install -D -m 644 "$here/../sqm.service" "$root/lib/systemd/system/sqm.service"
install -D -m 644 "$here/../sqm-serve.service" "$root/lib/systemd/system/sqm-serve.service"
install -D -m 644 "$here/../sqm-web.service" "$root/lib/systemd/system/sqm-web.service"
install -D -m 644 "$here/../sqm.preset" "$root/lib/systemd/system-preset/80-sqm.preset"
install -D -m 644 "$here/sqm.conf" "$root/etc/config/sqm"
install -D -m 755 "$here/../ifupdown/sqm" "$root/usr/share/doc/sqm/examples/if-up.d-sqm"
install -D -m 644 "$here/../../LICENSE-MIT" "$root/usr/share/doc/sqm/copyright"
gzip -9n <"$here/../../CHANGELOG.md" >"$root/usr/share/doc/sqm/changelog.gz"
chmod 644 "$root/usr/share/doc/sqm/changelog.gz"
cp -r "$here/../../docs/." "$root/usr/share/doc/sqm"
chmod -R u=rwX,go=rX "$root/usr/share/doc/sqm"
share=$root/usr/share
mkdir -p "$share/man/man8" "$share/man/man5" "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$program" manual "$share/man/man8"
mv "$share"/man/man8/*.5 "$share/man/man5"
gzip -9n "$share"/man/man8/*.8 "$share"/man/man5/*.5
"$program" completions bash >"$share/bash-completion/completions/sqm"
"$program" completions zsh >"$share/zsh/vendor-completions/_sqm"
"$program" completions fish >"$share/fish/vendor_completions.d/sqm.fish"

mkdir "$root/DEBIAN"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN"
echo /etc/config/sqm >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<CONTROL
Package: sqm
Version: $version
Architecture: $architecture
Maintainer: the authors of sqm <sqm@localhost>
Section: net
Priority: optional
Depends: libc6 (>= $libc), libgcc-s1, passwd
Conflicts: sqm-scripts
Installed-Size: $(du -sk "$root" | cut -f1)
Description: Smart Queue Management
 Keeps latency low while an internet line is full: plans the queues that end bufferbloat, sets them up in the kernel, keeps them in force, and measures the difference.
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | sort | xargs md5sum >DEBIAN/md5sums)
mkdir -p "$out"
file=$out/sqm_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$file" >/dev/null
echo "$file"
