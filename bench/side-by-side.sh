#!/bin/bash
# Compares sqm's load generator with iperf3, and its probes with irtt, between two network namespaces on this machine.
# Needs root, iperf3, irtt and jq. Runs alternate and medians are compared, so that other load on the machine affects all alike.
# Makes and removes everything itself.
#
#   bench/side-by-side.sh target/release/sqm [rounds]
set -euo pipefail

sqm=$(realpath "${1:?usage: $0 SQM [ROUNDS]}")
rounds=${2:-5}
near=sqm-bench-near far=sqm-bench-far
server=10.99.0.2
work=$(mktemp -d)
pids=()

clean_up() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for namespace in $near $far; do ip netns del $namespace 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT

for namespace in $near $far; do
    ip netns add $namespace
    ip -n $namespace link set lo up
done
ip link add eth0 netns $near type veth peer name eth0 netns $far
ip -n $near addr add 10.99.0.1/24 dev eth0
ip -n $far addr add $server/24 dev eth0
ip -n $near link set eth0 up
ip -n $far link set eth0 up

ip netns exec $far "$sqm" serve --quiet & pids+=($!)
ip netns exec $far iperf3 -s >/dev/null & pids+=($!)
ip netns exec $far irtt server -i 1ms >/dev/null 2>&1 & pids+=($!)
until [ "$(ip netns exec $far ss -lntuH | grep -cE ':(35353|5201|2112) ')" -ge 4 ]; do sleep 0.1; done

median() { sort -g | awk '{v[NR]=$1} END {print (NR%2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

iperf() { # options -> Mbit/s at the receiver, the first two seconds left out
    ip netns exec $near iperf3 -c $server -P 4 -t 8 -O 2 -C cubic -J "$@" | jq '.end.sum_received.bits_per_second / 1e6'
}
ours() { # test direction -> Mbit/s at the receiver, the first two seconds left out
    ip netns exec $near "$sqm" test $server --quiet --json - --test "$1" --duration 10 --settle 2 --idle 0.5 \
        | jq ".summary.$2"
}

for round in $(seq "$rounds"); do
    echo "throughput, round $round of $rounds" >&2
    iperf -R >>"$work/iperf.down"
    ours tcp_4down download_mbit >>"$work/ours.down"
    iperf >>"$work/iperf.up"
    ours tcp_4up upload_mbit >>"$work/ours.up"
done
for way in down up; do
    theirs=$(median <"$work/iperf.$way") ours=$(median <"$work/ours.$way")
    awk -v w=$way -v t="$theirs" -v o="$ours" \
        'BEGIN {printf "%-4s  iperf3 %8.0f Mbit/s   sqm %8.0f Mbit/s   ratio %.3f\n", w, t, o, o / t}'
done

# Jitter: the difference of consecutive round trips, 99th percentile, at 20 ms between probes of 172 bytes.
differences='[range(1; length) as $i | .[$i] - .[$i - 1] | fabs] | sort | .[(length * 0.99 | floor)]'
their_jitter() {
    ip netns exec $near irtt client -Q -i 20ms -l 172 -d 12s -o - $server 2>/dev/null \
        | jq "[.round_trips[].delay.rtt // empty | . / 1e6] | $differences"
}
our_jitter() {
    ip netns exec $near "$sqm" test $server --quiet --json - --test voip --duration 12 --settle 1 --idle 0.5 \
        | jq "[.probes[0].samples[].rtt_ms // empty] | $differences"
}
jitter() { # label
    for round in $(seq "$rounds"); do
        echo "jitter, $1, round $round of $rounds" >&2
        their_jitter >>"$work/irtt.$1"
        our_jitter >>"$work/ours.$1"
    done
    theirs=$(median <"$work/irtt.$1") ours=$(median <"$work/ours.$1")
    awk -v l="$1" -v t="$theirs" -v o="$ours" \
        'BEGIN {printf "jitter p99 %-7s irtt %8.3f ms   sqm %8.3f ms   ratio %.2f\n", l, t, o, o / t}'
}
jitter idle
ip netns exec $near iperf3 -c $server -P 2 -t 3600 >/dev/null & pids+=($!)
jitter loaded
