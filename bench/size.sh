#!/bin/sh
# Prints the stripped sizes of the programs that `make size` has built, and what the fleet adds to each. Fails if that is more than
# 2,000,000 bytes.
set -eu

most=2000000
target=${CARGO_TARGET_DIR:-target}
router=$(uname -m)-unknown-linux-musl/router/sqm

size() { # PROGRAM
    strip -o "$target/stripped" "$target/$1"
    stat -c %s "$target/stripped"
}

compare() { # NAME, program without the fleet, program with it
    without=$(size "$2") with=$(size "$3")
    echo "$1: $without bytes without the fleet, $with with it: $((with - without)) more"
    [ $((with - without)) -le $most ] || { echo "$1: more than $most bytes"; exit 1; }
}

echo "only what shapes: $(size shape/release/sqm) bytes"
compare "whole program" without-fleet/release/sqm release/sqm
compare "program for routers" "openwrt/$router" "openwrt-fleet/$router"
