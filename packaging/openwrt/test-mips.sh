#!/bin/sh
# Runs the programs for MIPS (`make router TARGET=mips-unknown-linux-musl`, big endian, and mipsel) under qemu's user emulation, beside
# this machine's own program. Needs root and qemu-user-static.
# Usage: test-mips.sh SQM FOLDER ["mips mipsel"]; FOLDER/TARGET/router/sqm are the programs.
#
# - The plan of each setup script is the same as on this machine: no byte order or word size in it.
# - The daemon waits for as long as it asks the kernel to. With the wrong layout of time-outs (rustix and libc on 32-bit musl) it does
#   not wait at all on big endian machines and ends with EINVAL on little endian ones.
# The emulation has no queues, so the daemon's only section names a device that does not exist.
set -eu

own=$(realpath "$1")
folder=$(realpath "$2")
work=$(mktemp -d)
daemon=
clean_up() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
fail() { echo "$0: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "the daemon needs root"

section() { # SCRIPT INTERFACE
    printf "config queue\n\toption enabled '1'\n\toption interface '%s'\n\toption download '85000'\n\toption upload '10000'\n\toption script '%s.qos'\n\toption link 'docsis'\n" "$2" "$1"
}
number=0
for script in piece_of_cake layer_cake best_of_cake simple simplest simplest_tbf hfsc_lite hfsc_litest; do
    number=$((number + 1))
    section $script "none$number"
done >"$work/all"
section best_of_cake sqm-none0 >"$work/one"
"$own" plan --config "$work/all" --format json >"$work/expected"

for target in ${3:-mips mipsel}; do
    qemu=$(command -v qemu-$target-static) || fail "qemu-$target-static is missing (Debian package qemu-user-static)"
    program=$folder/$target-unknown-linux-musl/router/sqm
    [ -x "$program" ] || fail "$program is missing: make router TARGET=$target-unknown-linux-musl"
    run() { "$qemu" -cpu 24Kc "$program" "$@"; }
    [ "$(run --version)" = "$("$own" --version)" ] || fail "$target: $(run --version)"
    run plan --config "$work/all" --format json >"$work/plan"
    cmp "$work/expected" "$work/plan" || fail "$target: another plan than on this machine"

    # Each system call is a line. The daemon waits for its configuration and looks for it each second.
    rm -f "$work/config"
    "$qemu" -cpu 24Kc -strace "$program" daemon --config "$work/config" --state-dir "$work/$target" >"$work/log" 2>&1 &
    daemon=$!
    until_status() { # COMMAND...
        tries=0
        until run status --daemon --state-dir "$work/$target" 2>&1 | "$@"; do
            tries=$((tries + 1))
            kill -0 $daemon 2>/dev/null && [ $tries -lt 100 ] || { tail -n 20 "$work/log"; fail "$target: the daemon does not answer"; }
            sleep 0.2
        done
    }
    until_status sh -c '! grep -q .'
    waits() { grep -c ' p*poll[_0-9a-z]*(' "$work/log" || true; }
    before=$(waits)
    sleep 10
    kill -0 $daemon 2>/dev/null || { tail -n 20 "$work/log"; fail "$target: the daemon has ended"; }
    count=$(($(waits) - before))
    [ $count -ge 5 ] && [ $count -le 20 ] || fail "$target: $count waits of a second within 10 s: the time-outs are wrong"
    cp "$work/one" "$work/config"
    until_status grep -q "^sqm-none0: waiting"
    kill $daemon
    wait $daemon || { tail -n 20 "$work/log"; fail "$target: exit code $?"; }
    daemon=
    echo "$target: $(run --version), plans as on this machine, $count waits of a second within 10 s"
done
