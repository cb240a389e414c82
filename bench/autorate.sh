#!/bin/bash
# What `sqm daemon` with `option autorate` takes of a processor: on an idle line, and under load in both directions on one
# whose rate changes, which is when it probes 20 times a second and writes rates. Fails if it is more than docs/autorate.md says.
# Needs root, iproute2, and strace for the system calls; best on the lab's router:
#
#   sqm lab up --line vdsl80
#   sqm lab run server -- sh -c 'sqm serve >/dev/null 2>&1 &'
#   sqm lab run router -- bench/autorate.sh [SECONDS]
#   sqm lab down
#
# System calls in User Mode Linux cost several times what they cost on a machine of one's own: there it is less.
set -euo pipefail

seconds=${1:-60}
most_idle=0.1 most_loaded=1.0
work=$(mktemp -d)
daemon= load=
clean_up() {
    for process in $load $daemon; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT

cat >"$work/config" <<END
config queue
	option enabled '1'
	option interface 'wan0'
	option download '40000'
	option upload '10000'
	option script 'best_of_cake.qos'
	option linklayer 'ethernet'
	option overhead '22'
	option autorate '1'
	option max_download '200000'
	option max_upload '50000'
	option autorate_reflectors '10.66.0.2 10.66.0.1 10.65.0.2 fd00:66::2 fd00:66::1 fd00:65::2'
END
sqm daemon --config "$work/config" --state-dir "$work/state" 2>"$work/log" &
daemon=$!
until grep -q shaped "$work/log"; do
    kill -0 $daemon
    sleep 0.2
done

# Nanoseconds of processor that all threads have had.
used() { awk '{sum += $1} END {printf "%d", sum}' /proc/"$daemon"/task/*/schedstat; }
wakes() { awk '/^voluntary/ {sum += $2} END {print sum}' /proc/"$daemon"/task/*/status; }
now() { echo "${EPOCHREALTIME/[.,]/}"; }

failed=0
measure() { # name, limit in percent
    local used_before wakes_before from share
    used_before=$(used) wakes_before=$(wakes) from=$(now)
    sleep "$seconds"
    share=$(awk -v ns=$(($(used) - used_before)) -v us=$(($(now) - from)) 'BEGIN {printf "%.3f", ns / us / 10}')
    printf '%-8s %7s %% of a processor (at most %s), %s wakes a second\n' "$1" "$share" "$2" \
        $((($(wakes) - wakes_before) / seconds))
    awk -v share="$share" -v most="$2" 'BEGIN {exit !(share < most)}' || failed=1
}

sleep 8 # what the start takes is no matter here, and probes end some seconds after the last traffic
measure idle $most_idle
ip netns exec h1 sqm test 10.66.0.2 --quiet --json "$work/result" --duration $((seconds + 10))s >/dev/null 2>&1 &
load=$!
sleep 6
measure loaded $most_loaded
sqm status --daemon | grep -A2 autorate || true
exit $failed
