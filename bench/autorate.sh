#!/bin/bash
# Measures the processor time of `sqm daemon` with `option autorate`, on an idle line and under load. Under load the daemon probes
# reflectors 20 to 40 times a second, reads counters 20 times a second, and writes rates and a log with every decision. Fails if the
# share of one processor is more than 0.1 % when idle or 1 % under load, or if fewer than 15 answers a second arrived, because a
# daemon without answers has little to do.
# Makes and removes its own network namespaces; needs root, iproute2 and jq. Uses CAKE in both directions if the kernel has it,
# otherwise HTB with short queues in both, otherwise HTB in one.
#
#   bench/autorate.sh target/release/sqm [SECONDS [echo|udp]]
#
# With "echo" no reflector answers timestamp requests, so the daemon samples four times as many packets of TCP connections; needs nft.
# With "udp" the reflectors are `sqm serve`.
#
# Counts the processor time of all threads of the daemon. A busy machine makes it a little longer, User Mode Linux (sqm-lab) many
# times. Everything else (hosts, and the network between them) runs on other processors if there are any, because the kernel counts
# an interrupt for their packets as time of the process that it interrupts. The time includes the path of the daemon's own probes
# through all namespaces.
set -euo pipefail

sqm=$(realpath "${1:?usage: $0 SQM [SECONDS [timestamps|echo|udp]]}")
seconds=${2:-30}
signals=${3:-timestamps}
case $signals in
    timestamps | echo) asked= ;;
    udp) asked=sqm:// ;;
    *) echo "$0: '$signals' is not timestamps, echo or udp" >&2; exit 2 ;;
esac
most_idle=0.1 most_loaded=1.0 least_answers=15
name=sqm-bench-$$
work=$(mktemp -d)
processes= hosts=
clean_up() {
    for process in $processes; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    for host in $hosts; do ip netns del "$name-$host" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT

# A home, the router, a modem with large buffers and a rate that changes, a core that answers probes, and a server. Home and server
# send less than the line carries most of the time, so that even a plain FIFO keeps a short queue in the shaper.
hosts="home router modem core server"
for host in $hosts; do
    ip netns add "$name-$host"
    ip -n "$name-$host" link set lo up
done
# The daemon runs on the last processor, everything else on the others.
apart=
if [ "$(nproc)" -gt 1 ]; then
    taskset -cp "0-$(($(nproc) - 2))" $$ >/dev/null
    apart="taskset -c $(($(nproc) - 1))"
fi
on() { local host=$1; shift; ip netns exec "$name-$host" "$@"; }
wire() { # host, device, address, host, device, address
    # No segmentation offload: home lines carry no packets of 64 KB, and its token bucket would drop them.
    ip -n "$name-$1" link add "$2" gso_max_segs 1 type veth peer name "$5" netns "$name-$4" gso_max_segs 1
    ip -n "$name-$1" address add "$3/24" dev "$2"
    ip -n "$name-$4" address add "$6/24" dev "$5"
    ip -n "$name-$1" link set "$2" up
    ip -n "$name-$4" link set "$5" up
}
wire home eth 10.0.0.1 router lan 10.0.0.2
wire router wan 10.1.0.1 modem lan 10.1.0.2
wire modem wan 10.2.0.1 core lan 10.2.0.2
wire core eth 10.4.0.1 server eth 10.4.0.2
for host in router modem core; do on $host sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'; done
route() { ip -n "$name-$1" route add "$2" via "$3"; }
route home default 10.0.0.2
route router default 10.1.0.2
route modem default 10.2.0.2
route modem 10.0.0.0/24 10.1.0.1
route core default 10.2.0.1
route server default 10.4.0.1
reflectors=
for address in 10.3.0.1 10.3.0.2 10.3.0.3 10.3.0.4 10.3.0.5; do
    ip -n "$name-core" address add $address/32 dev lo
    reflectors+=" $asked$address"
done
[ "$signals" != echo ] || on core nft 'add table ip bench; add chain ip bench in { type filter hook input priority 0; };
    add rule ip bench in icmp type timestamp-request drop'
line() { # kbit/s
    on modem tc qdisc replace dev wan root tbf rate "$1kbit" burst 16k limit 1m
    on modem tc qdisc replace dev lan root tbf rate "$1kbit" burst 16k limit 1m
}
line 20000
for host in home server; do on $host tc qdisc add dev eth root tbf rate 9mbit burst 16k limit 200k; done

config() { # setup script, download, further options
    cat <<END
config queue
	option enabled '1'
	option interface 'wan'
	option download '$2'
	option upload '10000'
	option script '$1.qos'
	option linklayer 'ethernet'
	option overhead '18'
	option autorate '1'
	option min_upload '5000'
	option max_upload '100000'
	option autorate_reflectors '$reflectors'
	option autorate_log 'rates.csv'
$3
END
}
download="	option min_download '5000'
	option max_download '100000'"
# A long queue in the shaper itself would be bloat that no rate removes.
short="	option qdisc 'pfifo'
	option ilimit '40'
	option elimit '40'"
for queues in CAKE HTB "HTB, in one direction"; do
    case $queues in
        CAKE) config best_of_cake 10000 "$download" ;;
        HTB) config simplest 10000 "$download
$short" ;;
        *) config simplest 0 "$short" ;;
    esac >"$work/config"
    on router "$sqm" start --config "$work/config" --state-dir "$work/state" >/dev/null 2>"$work/refused" && break
    [ "$queues" != "HTB, in one direction" ] || { cat "$work/refused"; exit 1; }
done
on router "$sqm" stop --state-dir "$work/state" >/dev/null
echo "queues: $queues"
for host in server core; do
    # Without on(): otherwise clean_up would kill the function's shell and not the server.
    ip netns exec "$name-$host" "$sqm" serve >/dev/null 2>&1 &
    processes+=" $!"
done
# shellcheck disable=SC2086
LOGS_DIRECTORY="$work" ip netns exec "$name-router" $apart "$sqm" daemon --config "$work/config" --state-dir "$work/state" 2>"$work/log" &
daemon=$!
processes="$daemon $processes"
until grep -q shaped "$work/log"; do
    kill -0 $daemon || { cat "$work/log"; exit 1; }
    sleep 0.2
done

# Processor time of all threads in nanoseconds, and the number of times they were woken.
used() { awk '{sum += $1} END {printf "%d", sum}' /proc/$daemon/task/*/schedstat; }
wakes() { awk '/^voluntary/ {sum += $2} END {print sum}' /proc/$daemon/task/*/status; }
logged() { stat -c %s "$work/rates.csv" 2>/dev/null || echo 0; }
now() { echo "${EPOCHREALTIME/[.,]/}"; }

status() { on router "$sqm" status --daemon --json --state-dir "$work/state"; }
answered() { status | jq '[.interfaces[0].autorate.reflectors[].answers] | add'; }

failed=0
measure() { # name, limit in percent
    local used_before wakes_before logged_before from share
    used_before=$(used) wakes_before=$(wakes) logged_before=$(logged) from=$(now)
    sleep "$seconds"
    share=$(awk -v ns=$(($(used) - used_before)) -v us=$(($(now) - from)) 'BEGIN {printf "%.3f", ns / us / 10}')
    printf '%-7s %6s %% of a processor (limit %s), %s wakes and %s bytes of log a second\n' "$1" \
        "$share" "$2" $((($(wakes) - wakes_before) / seconds)) $((($(logged) - logged_before) / seconds))
    awk -v share="$share" -v most="$2" 'BEGIN {exit !(share < most)}' || failed=1
}

# Leave out the start.
sleep 8
measure idle $most_idle
ip netns exec "$name-home" "$sqm" test 10.4.0.2 --quiet --json "$work/result" --duration $((seconds + 10))s >/dev/null 2>&1 &
processes+=" $!"
(while sleep 7; do line 7000; sleep 3; line 25000; done) &
processes+=" $!"
sleep 6
before=$(answered)
measure loaded $most_loaded
answers=$((($(answered) - before) / seconds))
status | jq -r '.interfaces[0].autorate | "\(.probes_sent) probes, \(.download.cuts) and \(.upload.cuts) cuts, \(.tcp_samples) samples of connections"'
echo "$answers answers a second (at least $least_answers needed)"
[ "$answers" -ge $least_answers ] || failed=1
# The daemon writes the rest of its log when it ends; a replay shows whether it has every decision.
kill $daemon && wait $daemon || true
"$sqm" autorate replay "$work/rates.csv" --json | jq -e '.different == 0' >/dev/null || {
    echo "the log does not have every decision"
    failed=1
}
exit $failed
