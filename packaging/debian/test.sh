#!/bin/sh
# Installs the package on a clean Debian 12, starts the daemon there, shapes, removes the package, and looks for what is left.
# Needs root, debootstrap and a Debian mirror; changes nothing on this machine: the system is a folder of its own, its network
# a namespace of its own.
# Usage: test.sh PACKAGE [FOLDER]  (the folder keeps the bare system for the next time)
set -eu

package=$1
keep=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/sqm/debian-12}
[ "$(id -u)" = 0 ] || { echo "test: only root can make a Debian system" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "test: the Debian package debootstrap is missing" >&2; exit 1; }

if [ ! -e "$keep/done" ]; then
    rm -rf "$keep"
    mkdir -p "$keep"
    debootstrap --variant=minbase --include=systemd,iproute2 bookworm "$keep/system" >"$keep/log" 2>&1 || {
        tail -n 20 "$keep/log" >&2
        exit 1
    }
    touch "$keep/done"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -a "$keep/system" "$work/system"
cp "$package" "$work/system/tmp/sqm.deb"

# A network, mounts and processes of its own; they end with it.
unshare --net --mount --pid --fork --mount-proc="$work/system/proc" chroot "$work/system" /bin/sh -eu <<'INSIDE'
fail() { echo "test: $*" >&2; exit 1; }
files() { find / -xdev \( -path /proc -o -path /tmp -o -path /var -o -path /run -o -path /test \) -prune -o -print | sort; }
mkdir /test
files >/test/before

dpkg -i /tmp/sqm.deb >/test/log 2>&1 || { cat /test/log; fail "it does not install"; }
sqm --version
systemctl is-enabled sqm.service >/dev/null || fail "the unit is not enabled"
# A small system has no man, with which the unit's documentation would be looked up.
systemd-analyze verify sqm.service 2>&1 | grep -v "'man " >/test/log || true
[ ! -s /test/log ] || { cat /test/log; fail "systemd does not like the unit"; }

# Any device that this machine's kernel can make will do.
for kind in dummy veth ifb; do
    ip link add d0 type $kind 2>/dev/null && break
done
ip link set d0 up || fail "this machine's kernel has no virtual devices"
# Of what every kernel with traffic control has.
cat >/etc/config/sqm <<CONFIG
config queue
	option enabled '1'
	option interface 'd0'
	option download '0'
	option upload '10mbit'
	option script 'simplest_tbf.qos'
	option qdisc 'pfifo'
CONFIG
# As the unit starts it, by hand: systemd itself cannot run here.
command=$(sed -n 's/^ExecStart=\([^$]*\).*/\1/p' /lib/systemd/system/sqm.service)
$command 2>/test/log & daemon=$!
for n in $(seq 100); do
    sqm status --daemon >/test/said 2>&1 && grep -q 'd0: shaped' /test/said && break
    sleep 0.1
done
grep -q 'd0: shaped' /test/said || { cat /test/said /test/log; fail "the daemon does not shape"; }
tc qdisc show dev d0 | grep -q 'tbf 1: root .*rate 10Mbit' || fail "tc does not see the queue"
# The package goes while the queues of a daemon that died are in force.
kill -9 $daemon
wait $daemon || true
tc qdisc show dev d0 | grep -q tbf || fail "the queues died with the daemon"
dpkg -r sqm >/test/log 2>&1 || { cat /test/log; fail "it does not go"; }
tc qdisc show dev d0 | grep tbf && fail "d0 is still shaped"
dpkg -P sqm >/test/log 2>&1 || { cat /test/log; fail "it does not go for good"; }
files >/test/after
diff /test/before /test/after || fail "files are left"
[ ! -e /run/sqm ] || fail "/run/sqm is left"
ls /var/lib/dpkg/info | grep '^sqm\.' && fail "dpkg remembers it"
echo "test: installed, started, removed; nothing is left"
INSIDE
