#!/bin/sh
# Installs the Debian packages that the lab needs, if any is missing, and says so beforehand.
# Usage: deps.sh run | build | flent      (to run the lab; to build its virtual-time kernel as well; to install Flent)
set -eu

packages="user-mode-linux kmod iproute2 ethtool iptables"
case "${1:-}" in
    run) ;;
    build) packages="$packages linux-source-6.1 gcc libc6-dev make flex bison bc xz-utils" ;;
    flent) packages="python3 python3-venv" ;;
    *) echo "usage: $0 run|build|flent" >&2; exit 2 ;;
esac

missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "Installing Debian packages:$missing" >&2
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "This needs root: run 'apt-get install$missing' as root, then try again." >&2
    exit 1
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086  # each is a word
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
