#!/bin/sh
# Installs missing Debian packages, and names them first.
# Usage: deps.sh run | build | flent | nats | fuzz | web | browser | tarball | router | rust | deb | shells
# (run: to run the lab; build: to build its virtual-time kernel, too; flent: to install Flent; nats: to
# test with nats-server; fuzz: for make fuzz; web: to build the page; browser: to test it; tarball: to build the static program; router: to build
# the program for routers; mips: for make test-mips; rust: for make check-32-bit without rustup; deb: to test the Debian
# package; shells: to test completion in other shells than bash)
set -eu

packages="gcc libc6-dev user-mode-linux kmod iproute2 ethtool iptables nftables iputils-ping fonts-dejavu-core"
case "${1:-}" in
    run) ;;
    build) packages="$packages python3 linux-source-6.1 make patch flex bison bc xz-utils systemd util-linux ppp pppoe procps irtt" ;;
    flent) packages="python3 python3-venv" ;;
    nats)
        packages=nats-server
        # A Go from elsewhere may be newer, and then fetches the version that it needs by itself.
        command -v go >/dev/null || packages="nats-server golang-go"
        ;;
    fuzz) packages="g++" ;;
    web)
        packages=
        # A Node.js from elsewhere has its own npm.
        command -v npm >/dev/null || packages="nodejs npm"
        ;;
    browser) packages="chromium" ;;
    tarball) packages="musl-tools file binutils" ;;
    rust) packages="rustc-web cargo-web rust-web-src" ;;
    router) packages="xz-utils python3 python3-venv musl-tools" ;;
    mips) packages="qemu-user-static" ;;
    deb) packages="debootstrap binutils dpkg-dev" ;;
    shells) packages="zsh fish" ;;
    *) echo "usage: $0 run|build|flent|nats|fuzz|web|browser|tarball|router|mips|rust|deb|shells" >&2; exit 2 ;;
esac

# `make test` runs several of these scripts at a time, and apt-get does not wait for another one.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/sqm"
mkdir -p "$cache"
exec 9>"$cache/deps.lock"
flock 9

missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

by_hand="run 'apt-get install$missing' as root, then try again"
command -v apt-get >/dev/null || {
    echo "these Debian packages are missing, and this machine has no apt-get:$missing" >&2
    exit 1
}
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "Debian packages are missing, and only root can install them: $by_hand." >&2
    exit 1
fi
echo "Installing Debian packages:$missing" >&2
install() {
    # shellcheck disable=SC2086  # one word for each package
    $as_root apt-get update -qq &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
} 9>&-
install || {
    echo "the installation failed: $by_hand." >&2
    exit 1
}
