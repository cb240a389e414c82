#!/bin/bash
# Measures the memory of `sqm daemon` with one line, without and with `option autorate`, after it has answered clients and read its
# configuration again some times. Fails if the resident set (VmRSS) is more than 4096 kB: a router with 64 MB has little to spare.
# Uses the lab's router, so that it needs no privileges:
#
#   bench/memory.sh target/openwrt/x86_64-unknown-linux-musl/router/sqm target/debug/sqm-lab
set -eu

most_kb=4096
program=$(realpath "${1:?usage: $0 SQM SQM-LAB}")
lab=$(realpath "${2:?usage: $0 SQM SQM-LAB}")

measure() { # NAME, further options of the section
    "$lab" run router -- sh -eu -c '
        cd /tmp
        printf "config queue\n\toption enabled 1\n\toption interface wan0\n\toption download 20mbit\n\toption upload 4mbit\n\toption script best_of_cake.qos\n$2" >memory
        "$1" daemon --config memory --state-dir /tmp/memory-state >memory-log 2>&1 & daemon=$!
        until "$1" status --daemon --state-dir /tmp/memory-state 2>/dev/null | grep -q "^wan0: shaped"; do
            kill -0 $daemon || { cat memory-log; exit 1; }
            sleep 0.1
        done
        for n in 1 2 3 4 5 6 7 8 9 10; do
            kill -HUP $daemon; sleep 1
            "$1" status --daemon --json --state-dir /tmp/memory-state >/dev/null
        done
        awk "/^(VmHWM|VmRSS|RssAnon|Threads):/ { print \$1, \$2 }" /proc/$daemon/status
        kill $daemon; wait $daemon' sh "$program" "$2" |
        awk -v name="$1" -v most=$most_kb '{ value[$1] = $2 }
            END {
                if (!(value["VmRSS:"] > 0)) { print name ": the daemon did not start"; exit 1 }
                printf "%-18s VmRSS %5d kB, of it anonymous %4d kB, highest %5d kB, threads %d\n",
                    name, value["VmRSS:"], value["RssAnon:"], value["VmHWM:"], value["Threads:"]
                if (value["VmRSS:"] > most) { print name ": more than " most " kB"; exit 1 }
            }'
}

"$lab" up >/dev/null
trap '"$lab" down >/dev/null' EXIT
measure "one line" ""
measure "and autorate" "\toption autorate 1\n\toption min_download 5mbit\n\toption max_download 40mbit\n\toption autorate_reflectors 10.66.0.2\n"
