#!/bin/sh
# Boots a clean Debian 12 with its systemd on the lab's kernel and installs the package there. Checks that the daemon starts, shapes,
# survives kill -9, reloads, stops and upgrades, that 'sqm setup' configures a line, that removing the package leaves nothing behind,
# and that the page works, for which the daemon writes the configuration from within its sandbox.
#
# Needs root (a Debian system has files of many owners), debootstrap and a Debian mirror. Changes nothing on this machine: the guest
# is a process, and its disk is a folder that the script removes.
# Usage: test.sh PACKAGE [FOLDER]  (FOLDER keeps the bare system for the next run)
set -eu

package=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sqm
keep=${2:-$cache/debian-12}
kernel=${SQM_LAB_CACHE:-$cache/lab}/linux-virtual-time
[ "$(id -u)" = 0 ] || { echo "test: must run as root, to make a Debian system" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "test: the Debian package debootstrap is missing" >&2; exit 1; }
[ -x "$kernel" ] || { echo "test: there is no lab kernel; build it with 'make lab-kernel'" >&2; exit 1; }

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
trap 'exit 130' HUP INT TERM
cp -a "$keep/system" "$work/system"
rm -rf "$work"/system/var/cache/apt/* "$work"/system/var/lib/apt/lists/*
cp "$package" "$work/system/root/sqm.deb"

cat >"$work/system/root/test.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/bin/sh /root/test
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
UNIT
mkdir -p "$work/system/etc/systemd/system/multi-user.target.wants"
ln -s /root/test.service "$work/system/etc/systemd/system/multi-user.target.wants/test.service"
ln -s /root/test.service "$work/system/etc/systemd/system/test.service"

# Files that users other than root create in a folder of the host belong to root. In memory they belong to their creator.
cat >"$work/system/root/init" <<'INIT'
#!/bin/sh
mount -t tmpfs tmpfs /mnt && cp -a /var/. /mnt && mount --move /mnt /var && exec /lib/systemd/systemd "$@"
INIT
chmod 755 "$work/system/root/init"

cat >"$work/system/root/test" <<'INSIDE'
fail() { echo "FAILED: $*"; journalctl --no-pager -u sqm -u sqm-web -u sqm-serve | tail -n 20; systemctl poweroff -ff; }
files() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var -o -path /run -o -path /root \) -prune -o -print | sort; }
shaped() { sleep 1; sqm verify >/dev/null && tc qdisc show dev d0 root | grep -q "cake 1: .*bandwidth $1" || fail "$2: $(tc qdisc show dev d0)"; }
# Sends a request to the daemon's socket: method, path, body.
daemon() {
    perl -MIO::Socket::UNIX -e 'my ($method, $path, $body) = @ARGV;
        my $s = IO::Socket::UNIX->new("/var/run/sqm/api.sock") or die "no daemon: $!\n";
        printf $s "%s %s HTTP/1.1\r\nHost: sqm\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", $method, $path, length $body, $body;
        $s->flush; print while <$s>' "$@" >/root/answer 2>&1
    head -n 1 /root/answer | grep -q "HTTP/1.1 2" || fail "$1 $2: $(cat /root/answer)"
}
# Fetches a path from sqm web.
page() { timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && printf "GET $0 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n" >&3 && cat <&3' "$1"; }
unshaped() { ! tc qdisc show dev d0 | grep -q cake && ! ip link show ifb4d0 2>/dev/null || fail "$1: still shaped"; }

files >/root/before
dpkg -i /root/sqm.deb >/root/log 2>&1 || { cat /root/log; fail "it does not install"; }
systemctl is-enabled --quiet sqm && systemctl is-active --quiet sqm || fail "it is not enabled and started"
systemctl status sqm | grep -q 'Status: "no interface is configured' || fail "the status does not report that no interface is configured"
systemctl is-active --quiet sqm-web sqm-serve && fail "sqm-web or sqm-serve runs without being enabled"
for unit in sqm sqm-serve sqm-web; do
    said=$(systemd-analyze verify --man=no "/lib/systemd/system/$unit.service" 2>&1 | grep "sqm") && fail "$unit does not verify: $said"
    said=$(systemd-analyze security --offline=true --threshold=20 --no-pager "/lib/systemd/system/$unit.service" | tail -n 1) ||
        fail "$unit has too high an exposure: $said"
    exposure="$exposure $unit $(echo "$said" | sed 's/.*: *\([0-9.]*\) .*/\1/')"
done

sed -i "s/enabled '0'/enabled '1'/; s/eth0/d0/" /etc/config/sqm
systemctl reload sqm || fail "it does not reload"
systemctl status sqm | grep -q 'Status: "d0 waiting: there is no network device d0' || fail "the status does not name the missing device"
ip link add d0 type dummy && ip link set d0 up
shaped 10Mbit "a device that arrives late"
kill -9 "$(systemctl show -p MainPID --value sqm)"
shaped 10Mbit "kill -9"
[ "$(systemctl show -p NRestarts --value sqm)" = 1 ] || fail "systemd did not restart it"
tc qdisc replace dev d0 root handle 9: fq_codel
shaped 10Mbit "another program"
sed -i s/10mbit/9mbit/ /etc/config/sqm && systemctl reload sqm
shaped 9Mbit "reload"
setpriv --reuid 65534 --clear-groups sqm status --daemon | grep -q "d0: shaped" || fail "other users cannot read the status"
# Installing the package again is an upgrade. The queues must stay: the log must have no new 'added 1: root'.
made() { journalctl --no-pager -u sqm | grep -c 'added 1: root'; }
before=$(made)
dpkg -i /root/sqm.deb >/root/log 2>&1 || { cat /root/log; fail "it does not upgrade"; }
shaped 9Mbit "upgrade"
[ "$before" = "$(made)" ] || fail "an upgrade makes new queues"
# In its sandbox the daemon must be able to read the machine's state and to write the configuration for the page.
daemon POST /v1/doctor '{"fix": false}'
grep -q '"findings": \[\]' /root/answer || fail "the doctor: $(cat /root/answer)"
daemon GET /v1/report ''
grep -q 'bandwidth 9Mbit\|bandwidth 9mbit' /root/answer || fail "the report: $(cat /root/answer)"
daemon GET /v1/configuration ''
revision=$(sed -n 's/.*"revision": *"\([^"]*\)".*/\1/p' /root/answer)
text=$(sed s/9mbit/8mbit/ /etc/config/sqm | perl -0pe 's/(["\\])/\\$1/g; s/\n/\\n/g; s/\t/\\t/g')
daemon PUT /v1/configuration "{\"text\": \"$text\", \"revision\": \"$revision\", \"confirm_seconds\": 0}"
shaped 8Mbit "a changed configuration"
grep -q 8mbit /etc/config/sqm || fail "the configuration is not written"
# The daemon reads learned capacities from a folder that outlives a restart of the machine.
echo nonsense >/var/lib/sqm/autorate-d0.learned || fail "there is no folder for state that outlives a restart"
[ "$(stat -c '%U %a' /var/lib/sqm)" = "root 700" ] || fail "other users may read the learned capacities: $(stat -c '%U %a' /var/lib/sqm)"
sed -i "s/option interface 'd0'/&\n\toption autorate '1'/" /etc/config/sqm && systemctl reload sqm && sleep 1
told=$(timeout 2 perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new("/var/run/sqm/api.sock"); print $s "GET /v1/events HTTP/1.0\r\nHost: sqm\r\n\r\n";
    $s->flush; $| = 1; print while <$s>')
echo "$told" | grep -q '/var/lib/sqm/autorate-d0.learned cannot be used' || fail "the daemon does not read the learned capacities: $told"
sed -i "/option autorate/d" /etc/config/sqm && systemctl reload sqm
shaped 8Mbit "without autorate"
systemctl enable --quiet --now sqm-web || fail "the page does not start"
for attempt in 1 2 3 4 5 6 7 8 9 10; do page / >/root/answer 2>/dev/null && break; sleep 1; done
grep -q '<!doctype html>\|<!DOCTYPE html>' /root/answer || fail "the page: $(cat /root/answer)"
page /api/v1/status >/root/answer
grep -q 'd0' /root/answer || fail "the page does not show the daemon's status: $(cat /root/answer)"
grep -q "^Uid:.$(id -u sqm-web)\b" "/proc/$(systemctl show -p MainPID --value sqm-web)/status" || fail "the page is not served by its user"
setpriv --reuid sqm-web --regid sqm-web --clear-groups test -r /etc/shadow && fail "the page's user reads root's files"
[ "$(stat -c '%U %a' /var/lib/sqm-web)" = "sqm-web 700" ] || fail "other users may read the page's files"
echo secret horse | sqm web --set-password || fail "a password cannot be set"
page /api/v1/session >/root/answer
grep -q '"role": *"reader"' /root/answer && grep -q '"password_set": *true' /root/answer || fail "a password has no effect: $(cat /root/answer)"
echo 'SQM_WEB_OPTIONS=""' >/etc/default/sqm
install -d -m 755 /etc/sqm && echo secret >/etc/sqm/serve-secret && systemctl start sqm-serve || fail "sqm-serve does not start"
systemctl is-active --quiet sqm-serve || fail "sqm-serve: $(systemctl status sqm-serve)"
systemctl stop sqm
unshaped stop
systemctl start sqm
shaped 8Mbit "start"
# 'sqm setup' with flags alone, where nothing is configured and nothing starts at boot. The contract's upload is 4 Mbit/s, of which the
# shaper gets 85 %.
systemctl disable --quiet --now sqm sqm-web
rm /etc/config/sqm
sqm setup --interface d0 --link docsis --advertised 20mbit 4mbit --no-server --boot --no-page </dev/null >/root/answer 2>&1 ||
    fail "setup: $(cat /root/answer)"
shaped 3400Kbit "setup"
systemctl is-enabled --quiet sqm && systemctl is-active --quiet sqm || fail "setup --boot: $(cat /root/answer)"
systemctl is-enabled --quiet sqm-web && fail "setup --no-page enables the page"
setpriv --reuid 65534 --clear-groups sqm status --daemon | grep -q "d0: shaped" || fail "the daemon does not keep what setup wrote"
# The same as a dialogue on a terminal, where the default route shows the device. Enter is the answer to all questions but
# those for the kind of line and the speeds. The preset of the package enables the daemon, and leaves the page off.
systemctl disable --quiet --now sqm
rm /etc/config/sqm
ip addr add 192.0.2.2/24 dev d0 && ip route add default via 192.0.2.1 dev d0
printf 'vdsl\n\n80 Mbit/s\n\n20 Mbit/s\n\n\n' | timeout 600 script -qefc "/usr/bin/sqm setup --no-page" /dev/null >/root/answer 2>&1 ||
    fail "the dialogue of setup: $(cat /root/answer)"
grep -q 'd0 leads to the internet' /root/answer && grep -q 'verified: the kernel holds what is configured' /root/answer ||
    fail "the dialogue of setup: $(cat /root/answer)"
grep -q "option download '68000'" /etc/config/sqm && tc qdisc show dev ifb4d0 root | grep -q 'bandwidth 68Mbit .*ptm overhead 22' ||
    fail "the dialogue sets up another line: $(cat /etc/config/sqm; tc qdisc show dev ifb4d0)"
systemctl is-enabled --quiet sqm && systemctl is-active --quiet sqm || fail "the dialogue does not start the daemon at boot"
[ "$(readlink -f /etc/systemd/system/multi-user.target.wants/sqm.service)" = "$(readlink -f /lib/systemd/system/sqm.service)" ] ||
    fail "another unit than the package's starts at boot"
systemctl preset --quiet sqm sqm-web sqm-serve
[ "$(systemctl is-enabled sqm sqm-web sqm-serve 2>/dev/null | xargs)" = "enabled disabled disabled" ] ||
    fail "the preset: $(systemctl is-enabled sqm sqm-web sqm-serve)"
sqm status --daemon | grep -q "d0: shaped" || fail "the daemon does not keep what the dialogue wrote"
ip route del default && ip addr del 192.0.2.2/24 dev d0
sqm setup --interface d0 --link docsis --advertised 20mbit 4mbit --no-server --boot --no-page </dev/null >/root/answer 2>&1 ||
    fail "setup again: $(cat /root/answer)"
shaped 3400Kbit "setup again"
systemctl enable --quiet --now sqm-web || fail "the page does not start again"
# Remove the package while a change waits for its confirmation.
daemon GET /v1/configuration ''
revision=$(sed -n 's/.*"revision": *"\([^"]*\)".*/\1/p' /root/answer)
daemon PUT /v1/configuration "{\"text\": \"$(printf %s "$text" | sed s/8mbit/7mbit/)\", \"revision\": \"$revision\", \"confirm_seconds\": 600}"
shaped 7Mbit "a change that waits"
dpkg -r sqm >/root/log 2>&1 || { cat /root/log; fail "the package cannot be removed"; }
unshaped "remove"
for unit in sqm sqm-web sqm-serve; do systemctl is-active --quiet $unit && fail "$unit still runs"; done
files >/root/after
diff /root/before /root/after | grep '^[<>]' | grep -vxE '> /etc/(config|config/sqm|config/sqm\.before-trial|config/\.sqm\.lock|sqm|sqm/serve-secret|default/sqm|(passwd|shadow|group|gshadow|subuid|subgid)-)' && fail "more than the configuration is left"
[ -e /var/lib/sqm/autorate-d0.learned ] || fail "removing the package without purging it deletes the learned capacities"
dpkg -P sqm >/root/log 2>&1 || { cat /root/log; fail "it is not purged"; }
getent passwd sqm-web >/dev/null && fail "its user is left"
# useradd and userdel keep copies of the files from before.
files | grep -vxE '/etc/(passwd|shadow|group|gshadow|subuid|subgid)-' >/root/after
grep -vxE '/etc/(passwd|shadow|group|gshadow|subuid|subgid)-' /root/before | diff - /root/after || fail "files are left"
for folder in /var/run/sqm /var/lib/sqm /var/lib/sqm-web /var/log/sqm; do [ ! -e $folder ] || fail "a folder is left: $folder"; done
ls /var/lib/dpkg/info | grep '^sqm\.' && fail "dpkg still has records of the package"
systemctl --failed --no-legend | grep sqm && fail "a unit is left"
echo "PASSED: installed, started, shaped, killed, upgraded, removed; nothing is left (exposure:$exposure)"
systemctl poweroff -ff
INSIDE

timeout 600 "$kernel" mem=512M root=/dev/root rootfstype=hostfs "rootflags=$work/system" rw quiet con=null con0=fd:0,fd:1 \
    umid=sqm-deb "uml_dir=$work" time-travel=inf-cpu init=/root/init systemd.show_status=0 \
    </dev/null >"$work/console" 2>/dev/null || true
grep '^PASSED' "$work/console" || {
    echo "test: the end of the guest's console:" >&2
    { sed -n '/FAILED/,$p' "$work/console" | grep . || tail -n 40 "$work/console"; } >&2
    exit 1
}
