#!/usr/bin/env python3
"""Records the netlink messages of the real tc, ip and nft, and the kernel's answers.

It prints the recordings of all files, each after a line `== NAME`. Run it as root, with strace, where the kernel has all
qdiscs; the router of the lab is such a place:

    sqm-lab up --clock virtual
    sqm-lab run router -- python3 $PWD/capture.py >recorded
    awk '/^== / { file = $2 ".txt"; printf "" >file; next } { print >file }' recorded

In the files, `$` is a command, `>` a message that it sent, `<` one that the kernel answered, and `|` a line that the command
printed. Messages are whole, with their header, in hexadecimal.
"""

import re
import shlex
import struct
import subprocess
import sys

DEVICE = "d0"
# RTM_NEWLINK, RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER
LINK, QDISC, CLASS, FILTER = 16, 36, 40, 44
# NFT_MSG_NEWTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE, NFT_MSG_NEWFLOWTABLE of NFNL_SUBSYS_NFTABLES
NFT_TABLE, NFT_CHAIN, NFT_RULE, NFT_FLOWTABLE = (10 << 8 | message for message in (0, 3, 6, 22))


def run(command):
    return subprocess.run(shlex.split(command), check=True, capture_output=True, text=True).stdout


def messages(data):
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        if length < 16:
            return
        yield kind, data[:length]
        data = data[(length + 3) & ~3:]


def trace(command):
    """The messages that the command sends and receives, and what it prints."""
    words = ["strace", "-f", "-s", "0", "-e", "trace=sendmsg,sendto,recvmsg,recvfrom"]
    words += ["-e", "write=3,4,5", "-e", "read=3,4,5", *shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr}")
    data, direction, found = b"", None, []
    for line in done.stderr.splitlines() + ["end"]:
        dump = re.match(r" \| [0-9a-f]{5}  ((?:[0-9a-f]{2} {1,2})+)", line)
        if dump:
            data += bytes.fromhex(dump.group(1).replace(" ", ""))
            continue
        found += [(direction, kind, message) for kind, message in messages(data)]
        data = b""
        call = re.search(r"(send|recv)(msg|to|from)\(", line)
        if call:
            direction = ">" if call.group(1) == "send" else "<"
    return found, done.stdout


def about_device(message, index):
    return struct.unpack_from("=i", message, 20)[0] == index


def is_probe(kind, message):
    """ip asks with an empty request what the kernel supports."""
    return kind == LINK and len(message) == 32 and not any(message[16:])


def record(command, kinds, directions="<>", prints=False):
    """Prints a command with the messages of these kinds that it exchanges about the device."""
    print("$", command)
    found, printed = trace(command)
    index = int(open(f"/sys/class/net/{DEVICE}/ifindex").read())
    for direction, kind, message in found:
        wanted = kind in kinds and direction in directions and not is_probe(kind, message)
        if wanted and (kind not in (QDISC, CLASS, FILTER) or about_device(message, index)):
            print(direction, message.hex())
    if prints:
        for line in printed.splitlines():
            print("|", line)


def start_file(name):
    print("== " + name)
    print(f"# Linux {run('uname -r').strip()}, {run('tc -V').split(',')[1].strip()}")


def qdisc(words, stab=""):
    record(f"tc qdisc add dev {DEVICE} root handle 1: {stab}{words}", [QDISC])
    record(f"tc qdisc show dev {DEVICE}", [QDISC])
    run(f"tc qdisc del dev {DEVICE} root")


def packets():
    """Sends some packets through the device, to an address that does not answer."""
    subprocess.run(shlex.split("ping -q -c 3 -i 0.01 -W 0.01 -s 500 192.0.2.2"), capture_output=True)


QDISCS = {
    "cake": [
        "cake",
        "cake bandwidth 10mbit",
        "cake bandwidth 4400kbit besteffort dual-srchost nat wash ack-filter rtt 50ms overhead 44 mpu 96 atm memlimit 4mb",
        "cake bandwidth 10gbit diffserv8 dual-dsthost ingress no-split-gso fwmark 0xff overhead -4 noatm",
        "cake bandwidth 20mbit diffserv4 flows ack-filter-aggressive overhead 22 ptm",
        "cake bandwidth 20mbit precedence hosts autorate-ingress",
        "cake bandwidth 20mbit diffserv3 srchost",
        "cake bandwidth 20mbit dsthost rtt 500us",
        "cake bandwidth 20mbit flowblind",
    ],
    "fq_codel": [
        "fq_codel",
        "fq_codel limit 1001 flows 512 quantum 300 target 13ms interval 80ms memory_limit 4mb noecn drop_batch 32",
        "fq_codel ce_threshold 1ms ce_threshold_selector 0x1/0x3 ecn",
    ],
    "codel": ["codel", "codel limit 700 target 13ms interval 80ms ecn ce_threshold 2ms"],
    "pie": ["pie", "pie limit 700 target 20ms tupdate 30ms alpha 1 beta 3 ecn bytemode dq_rate_estimator"],
    # With only one of both numbers the kernel makes more flows than packets, a combination that it refuses in a request.
    "sfq": ["sfq limit 300 flows 300", "sfq limit 100 perturb 10 quantum 1514 flows 50 divisor 512 depth 60 headdrop"],
    "fifo": ["pfifo", "pfifo limit 321", "bfifo limit 32100", "pfifo_head_drop limit 7"],
    "tbf": [
        "tbf rate 8mbit burst 8000 limit 300000",
        "tbf rate 8mbit burst 8000 limit 300000 overhead 22 mpu 64 linklayer atm",
        "tbf rate 40gbit burst 1mb limit 3mb peakrate 80gbit mtu 9000",
    ],
}

SIZE_TABLES = [
    "stab overhead 40 linklayer atm",
    "stab mtu 2047 tsize 128 mpu 64 overhead 22 linklayer ethernet",
    "stab overhead 34 linklayer ethernet",
]

HTB_CLASSES = [
    "htb rate 8mbit ceil 8mbit burst 1749 cburst 1749 quantum 1749",
    "htb rate 1mbit ceil 8mbit burst 1600 cburst 1700 prio 3 quantum 1514 overhead 22 mpu 64 linklayer atm",
    "htb rate 40gbit ceil 80gbit burst 100kb cburst 200kb prio 1 quantum 60000",
]

HFSC_CLASSES = [
    "hfsc sc rate 10mbit ul rate 10mbit",
    "hfsc rt m1 10204kbit d 1s m2 10mbit ls m2 80kbit ul m2 10204kbit",
]

FILTERS = [
    "protocol ip prio 1 handle 0x2/0xff fw classid 1:11",
    "protocol ip prio 2 u32 match u32 0 0 classid 1:11",
    "protocol ip prio 3 u32 match ip dsfield 0xb8 0xfc classid 1:12",
    "protocol ipv6 prio 4 u32 match ip6 priority 0xb8 0xfc classid 1:12",
    "protocol ip prio 5 u32 match ip protocol 6 0xff match ip dport 0 0xfc00 classid 1:11",
    "protocol arp prio 6 u32 match u32 0 0 classid 1:11",
]

# The tests expect the commands that `sqm plan --format tc` prints for this configuration.
FIREWALL = """config queue
\toption enabled '1'
\toption interface 'd0'
\toption download '24000'
\toption upload '4400'
\toption script 'simple.qos'
\toption squash_dscp '1'
\toption squash_ingress '1'
"""


def nft_commands():
    with open("/tmp/firewall", "w") as file:
        file.write(FIREWALL)
    lines = run("sqm plan --format tc --config /tmp/firewall").splitlines()
    return [line for line in lines if line.startswith("nft ")]


def main():
    subprocess.run(shlex.split(f"ip link del {DEVICE}"), capture_output=True)
    run(f"ip link add {DEVICE} type dummy")
    run(f"ip link set {DEVICE} up")
    run(f"ip addr add 192.0.2.1/24 dev {DEVICE}")
    run(f"ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev {DEVICE}")
    for name, words in QDISCS.items():
        start_file(name)
        for one in words:
            qdisc(one)
    start_file("statistics")
    for words in ["cake bandwidth 10mbit diffserv4", "fq_codel"]:
        record(f"tc qdisc add dev {DEVICE} root handle 1: {words}", [])
        packets()
        record(f"tc -s -j qdisc show dev {DEVICE}", [QDISC], prints=True)
        run(f"tc qdisc del dev {DEVICE} root")
    start_file("size_table")
    for stab in SIZE_TABLES:
        qdisc("fq_codel", stab + " ")
    start_file("htb")
    record(f"tc qdisc add dev {DEVICE} root handle 1: htb default 12 r2q 5 direct_qlen 100", [QDISC])
    record(f"tc qdisc show dev {DEVICE}", [QDISC])
    for number, words in enumerate(HTB_CLASSES):
        record(f"tc class add dev {DEVICE} parent 1: classid 1:1{number} {words}", [CLASS])
    record(f"tc class show dev {DEVICE}", [CLASS])
    start_file("filter")
    for words in FILTERS:
        record(f"tc filter add dev {DEVICE} parent 1: {words}", [FILTER])
    record(f"tc filter show dev {DEVICE} parent 1:", [FILTER])
    run(f"tc qdisc del dev {DEVICE} root")
    start_file("hfsc")
    record(f"tc qdisc add dev {DEVICE} root handle 1: hfsc default 11", [QDISC])
    record(f"tc qdisc show dev {DEVICE}", [QDISC])
    for number, words in enumerate(HFSC_CLASSES):
        record(f"tc class add dev {DEVICE} parent 1: classid 1:1{number} {words}", [CLASS])
    record(f"tc class show dev {DEVICE}", [CLASS])
    run(f"tc qdisc del dev {DEVICE} root")
    start_file("link")
    record("ip link add ifb4d0 type ifb", [LINK])
    record("ip link add ifb4d1 numtxqueues 4 type ifb", [LINK])
    record("ip link set ifb4d0 up", [LINK])
    record("ip link show ifb4d0", [LINK])
    start_file("redirect")
    record(f"tc qdisc add dev {DEVICE} handle ffff: ingress", [QDISC])
    record(f"tc filter add dev {DEVICE} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 "
           "action mirred egress redirect dev ifb4d0", [FILTER])
    record(f"tc filter show dev {DEVICE} parent ffff:", [FILTER])
    start_file("nftables")
    for command in nft_commands():
        record(command, [NFT_TABLE, NFT_CHAIN, NFT_RULE], directions=">")
    record("nft list table inet sqm_d0", [NFT_RULE], directions="<")
    run("nft delete table inet sqm_d0")
    start_file("flowtable")
    run("nft add table inet t")
    devices = "hook ingress priority 0; devices = { d0, ifb4d0 };"
    run(f"nft add flowtable inet t software '{{ {devices} }}'")
    record("nft list flowtables", [NFT_FLOWTABLE], directions="<")
    run("nft delete table inet t")
    for device in ["ifb4d0", "ifb4d1", DEVICE]:
        run(f"ip link del {device}")


main()
