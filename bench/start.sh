#!/bin/bash
# Measures the cost of `sqm start` and of a changed rate for each setup script: milliseconds, requests to the kernel, system calls.
# For comparison it also runs the commands that `sqm plan --format tc` prints, one process each. Makes and removes its own network
# namespace. Needs root, iproute2, nft, jq and strace. Names and skips a setup script that the kernel does not support.
#
#   bench/start.sh target/release/sqm [rounds]                                on this machine
#   sqm-lab up; sqm-lab run router -- bench/start.sh target/release/sqm       on the lab's kernel, which has all queues
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

config() { # setup script, its leaf, upload in kbit/s
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
# The minimum, because other load on the machine only adds time.
least() { sort -g | head -1; }
now() { echo $((${EPOCHREALTIME/[.,]/} % 1000000000000)); }
syscalls() { run strace -f -c -o "$work/trace" "$@" >/dev/null 2>&1 && awk '$NF == "total" {print $4}' "$work/trace"; }

printf '%-20s %27s %27s %17s\n' "" "start to verified" "changed rate" "tc, nft, ip"
printf '%-20s %9s %9s %7s %9s %9s %7s %9s %7s\n' \
    "least of $rounds" ms requests calls ms requests calls commands ms
for setup_script in best_of_cake piece_of_cake layer_cake simple simplest simplest_tbf hfsc_lite hfsc_litest \
    "simplest pfifo" "simplest_tbf pfifo"; do
    read -r script leaf <<<"$setup_script"
    config "$script" "$leaf" 10000 >"$work/config"
    config "$script" "$leaf" 9000 >"$work/slower"
    if ! run "$sqm" start --config "$work/config" >/dev/null 2>"$work/refused"; then
        printf '%-20s %s\n' "$setup_script" "$(tail -1 "$work/refused")"
        continue
    fi
    run "$sqm" stop >/dev/null
    for _ in $(seq "$rounds"); do
        run "$sqm" start --json --config "$work/config" >"$work/started" 2>/dev/null
        run "$sqm" reload --json --config "$work/slower" >"$work/reloaded" 2>/dev/null
        for command in started reloaded; do
            jq '.[0].elapsed_us' "$work/$command" >>"$work/$command.us"
            jq '.[0].kernel_requests' "$work/$command" >"$work/$command.requests"
        done
        run "$sqm" stop >/dev/null
    done
    start_calls=$(syscalls "$sqm" start --config "$work/config")
    reload_calls=$(syscalls "$sqm" reload --config "$work/slower")
    run "$sqm" stop >/dev/null

    "$sqm" plan --format tc --config "$work/config" >"$work/commands" 2>/dev/null
    for _ in $(seq "$rounds"); do
        from=$(now)
        run sh -e "$work/commands" >/dev/null
        echo $(($(now) - from)) >>"$work/commands.process"
        run tc qdisc del dev d0 root
        run tc qdisc del dev d0 ingress
        run ip link del ifb4d0
        run nft delete table inet sqm_d0 2>/dev/null || true
    done
    ms() { least <"$work/$1" | awk '{printf "%.1f", $1 / 1000}'; }
    printf '%-20s %9s %9s %7s %9s %9s %7s %9s %7s\n' "$setup_script" \
        "$(ms started.us)" "$(cat "$work/started.requests")" "$start_calls" \
        "$(ms reloaded.us)" "$(cat "$work/reloaded.requests")" "$reload_calls" \
        "$(wc -l <"$work/commands")" "$(ms commands.process)"
    rm -f "$work"/{started,reloaded,commands}*
done
