#!/bin/bash
# What `sqm start` and a changed rate cost, for each set-up: milliseconds, requests to the kernel, system calls; beside the
# same queues by the commands that `sqm plan --format tc` prints, one process each. In a network namespace of its own, which
# the script removes. Needs root, iproute2, nft, jq and strace. A set-up that the kernel cannot hold is named and left out.
#
#   bench/start.sh target/release/sqm [rounds]                                on this machine
#   sqm lab up; sqm lab run router -- bench/start.sh target/release/sqm       on the lab's kernel, which has all queues
#                                                                             (and system calls that cost ten times as much)
set -euo pipefail

sqm=$(realpath "${1:?usage: $0 SQM [ROUNDS]}")
rounds=${2:-5}
namespace=sqm-bench-start
work=$(mktemp -d)

clean_up() {
    ip netns del $namespace 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

ip netns add $namespace
ip -n $namespace link set lo up
ip -n $namespace link add d0 type veth peer name d1
ip -n $namespace link set d0 up
ip -n $namespace link set d1 up
run() { ip netns exec $namespace "$@"; }
export SQM_STATE_DIR=$work/state

config() { # set-up, its leaf, upload in kbit/s
    local leaf=${2:+"	option qdisc '$2'"}
    cat <<END
config queue
	option enabled '1'
	option interface 'd0'
	option download '85000'
	option upload '$3'
	option script '$1.qos'
	option squash_ingress '0'
	option linklayer 'ethernet'
	option overhead '18'
$leaf
END
}
median() { sort -g | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
now() { echo $((${EPOCHREALTIME/[.,]/} % 1000000000000)); }
# What a program that does nothing costs in this namespace: taken off the time of whole processes.
nothing() { local from; from=$(now); run true; echo $(($(now) - from)); }
whole() { local from; from=$(now); run "$@" >"$work/said" 2>"$work/warnings"; echo $(($(now) - from)); }
syscalls() { run strace -f -c -o "$work/trace" "$@" >/dev/null 2>&1 && awk '$NF == "total" {print $4}' "$work/trace"; }

idle=$(for _ in $(seq "$rounds"); do nothing; done | median)
printf '%-26s %33s %33s %17s\n' "" "start" "changed rate" "tc, nft, ip"
printf '%-26s %8s %8s %7s %7s %8s %8s %7s %7s %8s %8s\n' \
    "set-up" ms "process" requests calls ms "process" requests calls commands ms
for set_up in best_of_cake piece_of_cake layer_cake simple simplest simplest_tbf hfsc_lite hfsc_litest \
    "simplest pfifo" "simplest_tbf pfifo"; do
    read -r script leaf <<<"$set_up"
    config "$script" "$leaf" 10000 >"$work/config"
    config "$script" "$leaf" 9000 >"$work/slower"
    if ! run "$sqm" start --config "$work/config" >/dev/null 2>"$work/refused"; then
        printf '%-26s %s\n' "$set_up" "$(tail -1 "$work/refused")"
        continue
    fi
    run "$sqm" stop >/dev/null
    for _ in $(seq "$rounds"); do
        whole "$sqm" start --json --config "$work/config" >>"$work/start.process"
        jq '.[0].elapsed_us' "$work/said" >>"$work/start.own"
        jq '.[0].kernel_requests' "$work/said" >>"$work/start.requests"
        whole "$sqm" reload --json --config "$work/slower" >>"$work/reload.process"
        jq '.[0].elapsed_us' "$work/said" >>"$work/reload.own"
        jq '.[0].kernel_requests' "$work/said" >>"$work/reload.requests"
        run "$sqm" stop >/dev/null
    done
    start_calls=$(syscalls "$sqm" start --config "$work/config")
    reload_calls=$(syscalls "$sqm" reload --config "$work/slower")
    run "$sqm" stop >/dev/null

    "$sqm" plan --format tc --config "$work/config" >"$work/commands" 2>/dev/null
    for _ in $(seq "$rounds"); do
        from=$(now)
        run sh -e "$work/commands" >/dev/null
        echo $(($(now) - from - idle)) >>"$work/commands.process"
        run tc qdisc del dev d0 root
        run tc qdisc del dev d0 ingress
        run ip link del ifb4d0
        run nft delete table inet sqm_d0 2>/dev/null || true
    done
    for file in start reload; do
        for what in own process requests; do
            off=0
            [ $what = process ] && off=$idle
            median <"$work/$file.$what" | awk -v what=$what -v off="$off" \
                '{if (what == "requests") print $1; else printf "%.1f\n", ($1 - off) / 1000}' >"$work/$file.$what.median"
        done
    done
    figure() { cat "$work/$1.median"; }
    printf '%-26s %8s %8s %8s %6s %8s %8s %8s %6s %8s %8s\n' "$set_up" \
        "$(figure start.own)" "$(figure start.process)" "$(figure start.requests)" "$start_calls" \
        "$(figure reload.own)" "$(figure reload.process)" "$(figure reload.requests)" "$reload_calls" \
        "$(wc -l <"$work/commands")" "$(median <"$work/commands.process" | awk '{printf "%.1f", $1 / 1000}')"
    rm -f "$work"/{start,reload,commands}.*
done
