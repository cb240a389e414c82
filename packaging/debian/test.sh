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
systemd-analyze verify sqm.service 2>/test/log || { cat /test/log; fail "systemd does not like the unit"; }

ip link add d0 type dummy 2>/dev/null && ip link set d0 up || fail "this machine's kernel has no dummy device"
cat >/etc/config/sqm <<CONFIG
config queue
	option enabled '1'
	option interface 'd0'
	option download '0'
	option upload '10mbit'
	option script 'best_of_cake.qos'
CONFIG
# As the unit starts it, by hand: systemd itself cannot run here.
command=$(sed -n 's/^ExecStart=\([^$]*\).*/\1/p' /lib/systemd/system/sqm.service)
$command 2>/test/log & daemon=$!
for n in $(seq 100); do
    sqm status --daemon >/test/said 2>&1 && break
    grep -q failed /test/said && break
    sleep 0.1
done
if grep -q 'd0: shaped' /test/said; then
    tc qdisc show dev d0 | grep -q cake || fail "tc sees no cake"
elif grep -q 'this kernel has no' /test/said; then
    echo "test: this machine's kernel cannot shape; the daemon says so: $(tail -n 1 /test/said)"
else
    cat /test/said /test/log
    fail "the daemon does not shape and does not say why"
fi
# A shaped device is left to dpkg; the daemon is systemd's to end, which is not here.
kill -TERM $daemon
wait $daemon || fail "the daemon did not end well"
sqm start >/dev/null 2>&1 || true
dpkg -r sqm >/test/log 2>&1 || { cat /test/log; fail "it does not go"; }
tc qdisc show dev d0 | grep cake && fail "d0 is still shaped"
dpkg -P sqm >/test/log 2>&1 || { cat /test/log; fail "it does not go for good"; }
files >/test/after
diff /test/before /test/after || fail "files are left"
[ ! -e /run/sqm ] || fail "/run/sqm is left"
ls /var/lib/dpkg/info | grep '^sqm\.' && fail "dpkg remembers it"
echo "test: installed, started, removed; nothing is left"
INSIDE
