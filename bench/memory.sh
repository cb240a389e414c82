#!/bin/bash
# Measures the memory of `sqm daemon` with one line, without and with `option autorate`, after it has answered clients and read its
# configuration again some times. Fails if the resident set (VmRSS) is more than 4096 kB: a router with 64 MB has little to spare.
# Uses the lab's router, so that it needs no privileges:
#
#   bench/memory.sh target/openwrt/x86_64-unknown-linux-musl/router/sqm target/debug/sqm-lab
#
# A program with the feature `fleet` is also measured as a router of a fleet, at a nats-server on this router, whose fleet is made by the
# program beside SQM-LAB, without and with encryption by a certificate of openssl: that may add at most 1024 kB of anonymous memory. Its resident set has no limit.
set -eu

most_kb=4096
most_of_fleet_kb=1024
program=$(realpath "${1:?usage: $0 SQM SQM-LAB}")
lab=$(realpath "${2:?usage: $0 SQM SQM-LAB}")

measure() { # NAME, further options of the section, fleet: '' or the scheme of its server
    "$lab" run router -- sh -eu -c '
        cd /tmp
        scheme=$3
        printf "config queue\n\toption enabled 1\n\toption interface wan0\n\toption download 20mbit\n\toption upload 4mbit\n\toption script best_of_cake.qos\n$2" >memory
        set -- "$1" --config memory --state-dir /tmp/memory-state
        if [ -n "$scheme" ]; then
            rm -rf hub; tls=
            if [ $scheme = tls ]; then
                openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=localhost \
                    -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out hub.pem 2>openssl-log
                tls="--certificate /tmp/hub.pem --private-key /tmp/key.pem --certificate-authority /tmp/hub.pem"
            fi
            sqm fleet hub init hub --url $scheme://127.0.0.1:4222 --listen 127.0.0.1:4222 --store /tmp/store-$scheme $tls >hub-log 2>&1
            nats-server --config hub/server.conf >nats-log 2>&1 & server=$!
            sqm fleet enroll r1 --hub hub >enrolled
            key=$(sed -n "s/^.*fleet_key .\(U[A-Z0-9]*\).*/\1/p" enrolled)
            set -- "$@" --fleet-url $scheme://127.0.0.1:4222 --fleet-credentials /tmp/hub/credentials/r1.creds --fleet-key $key
            [ -z "$tls" ] || set -- "$@" --fleet-ca /tmp/hub.pem
        fi
        sqm=$1; shift
        mkdir -p memory-kept
        STATE_DIRECTORY=/tmp/memory-kept "$sqm" daemon "$@" >memory-log 2>&1 & daemon=$!
        until "$sqm" status --daemon --state-dir /tmp/memory-state 2>/dev/null | grep -q "^wan0: shaped"; do
            kill -0 $daemon || { cat memory-log >&2; exit 1; }
            sleep 0.1
        done
        # The router has reported to the hub.
        until [ -z "$scheme" ] || sqm fleet status --hub hub 2>/dev/null | grep -q "no document"; do
            kill -0 $daemon && kill -0 $server || { cat memory-log nats-log >&2; exit 1; }
            sleep 0.5
        done
        for n in 1 2 3 4 5 6 7 8 9 10; do
            kill -HUP $daemon; sleep 1
            "$sqm" status --daemon --json --state-dir /tmp/memory-state >/dev/null
        done
        awk "/^(VmHWM|VmRSS|RssAnon|Threads):/ { print \$1, \$2 }" /proc/$daemon/status
        kill $daemon; wait $daemon
        [ -z "$scheme" ] || { kill $server; wait $server || true; }' sh "$program" "$2" "$3" |
        awk -v name="$1" -v most=$((is_with_fleet ? 0 : most_kb)) '{ value[$1] = $2 }
            END {
                if (!(value["VmRSS:"] > 0)) { print name ": the daemon did not start"; exit 1 }
                printf "%-18s VmRSS %5d kB, of it anonymous %4d kB, highest %5d kB, threads %d\n",
                    name, value["VmRSS:"], value["RssAnon:"], value["VmHWM:"], value["Threads:"]
                if (most && value["VmRSS:"] > most) { print name ": more than " most " kB"; exit 1 }
            }'
}

anonymous() { sed -n 's/.*of it anonymous *\([0-9]*\) kB.*/\1/p'; }

is_with_fleet=0
"$program" daemon --help | grep -q fleet-url && is_with_fleet=1
"$lab" up >/dev/null
trap '"$lab" down >/dev/null' EXIT
alone=$(measure "one line" "" "") || { echo "$alone"; exit 1; }
echo "$alone"
measure "and autorate" "\toption autorate 1\n\toption min_download 5mbit\n\toption max_download 40mbit\n\toption autorate_reflectors 10.66.0.2\n" ""
[ $is_with_fleet = 1 ] || exit 0
for scheme in nats tls; do
    fleet=$(measure "fleet by $scheme" "" $scheme) || { echo "$fleet"; exit 1; }
    more=$(($(echo "$fleet" | anonymous) - $(echo "$alone" | anonymous)))
    echo "$fleet: $more kB more anonymous"
    [ $more -le $most_of_fleet_kb ] || { echo "fleet by $scheme: more than $most_of_fleet_kb kB"; exit 1; }
done
