#!/bin/sh
# Installs sqm from this folder, or removes it.
#
#   sudo ./install.sh                      install into /usr/local
#   sudo ./install.sh --prefix /opt/sqm    install into another folder
#   sudo ./install.sh --uninstall          remove it; the configuration stays
#   sudo ./install.sh --uninstall --purge  remove the configuration, logs and results as well
#
# With DESTDIR=FOLDER in the environment, files go below that folder, and neither users nor services are changed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
uninstall=no
purge=no
destination=${DESTDIR:-}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}
usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'
}
while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        [ $# -ge 2 ] || fail "--prefix needs a folder, such as --prefix /usr/local"
        prefix=$2
        shift
        ;;
    --uninstall) uninstall=yes ;;
    --purge) purge=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) fail "unknown option '$1'; see --help" ;;
    esac
    shift
done
case $prefix in
/*) ;;
*) fail "--prefix needs a folder that begins with '/', not '$prefix'" ;;
esac
[ "$purge" = no ] || [ "$uninstall" = yes ] || fail "--purge goes with --uninstall"
[ -n "$destination" ] || [ "$(id -u)" = 0 ] || fail "must run as root; nothing was changed"

units=$destination/etc/systemd/system
presets=$destination/etc/systemd/system-preset
list=$destination$prefix/share/sqm/installed-files
runs_systemd() { [ -z "$destination" ] && [ -d /run/systemd/system ]; }

remove() {
    [ -e "$list" ] || fail "$list is missing: sqm was not installed there by this script"
    if runs_systemd; then
        systemctl disable --quiet --now sqm-web.service sqm-serve.service sqm.service || true
    fi
    # Interfaces that were shaped by hand.
    if [ -z "$destination" ] && [ -d /var/run/sqm ]; then "$prefix/bin/sqm" stop || true; fi
    while read -r file; do rm -f "$destination$file"; done <"$list"
    rm -f "$list"
    rmdir "$destination$prefix/share/sqm" 2>/dev/null || true
    if runs_systemd; then systemctl daemon-reload; fi
    if [ "$purge" = yes ]; then
        rm -rf "$destination/etc/config/sqm" "$destination/etc/config/sqm.before-trial" "$destination/etc/default/sqm" \
            "$destination/etc/sqm/serve-secret" "$destination/var/lib/sqm" "$destination/var/lib/sqm-web" "$destination/var/log/sqm"
        rm -f "$destination/etc/config/.sqm.lock" "$destination/etc/config/.sqm.before-trial.lock"
        [ -n "$destination" ] || userdel sqm-web 2>/dev/null || true
    fi
    echo "sqm is removed."
}

# put MODE SOURCE FILE: installs a file, and records it for --uninstall.
put() {
    install -D -m "$1" "$2" "$destination$3"
    echo "$3" >>"$list.new"
}

if [ "$uninstall" = yes ]; then
    remove
    exit 0
fi

if [ -z "$destination" ]; then
    if command -v dpkg >/dev/null && dpkg -s sqm >/dev/null 2>&1; then
        fail "the Debian package sqm is installed; remove it first with 'apt remove sqm', or keep it and do not run this script"
    fi
    if [ -e /usr/lib/sqm/run.sh ]; then
        fail "sqm-scripts is installed, and both would set up the same queues; run '$here/bin/sqm import --help' to move its
configuration over, and remove sqm-scripts first"
    fi
fi
"$here/bin/sqm" --version >/dev/null 2>&1 || fail "$here/bin/sqm does not run on this machine: it is for $(basename "$here")"

mkdir -p "$(dirname "$list")"
: >"$list.new"
# The new file takes the name of the old one, so that a running daemon keeps its program.
rm -f "$destination$prefix/bin/sqm"
put 755 "$here/bin/sqm" "$prefix/bin/sqm"
for file in $(cd "$here/share" && find . -type f | sort); do
    put 644 "$here/share/$file" "$prefix/share/${file#./}"
done
# A system without systemd has no use for the units, but a packager may: with DESTDIR they are always installed.
if [ -n "$destination" ] || [ -d /run/systemd/system ] || [ -d /etc/systemd/system ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' HUP INT TERM
    for unit in sqm.service sqm-serve.service sqm-web.service; do
        sed "s|/usr/bin/sqm|$prefix/bin/sqm|g" "$here/systemd/$unit" >"$work/$unit"
        put 644 "$work/$unit" "${units#"$destination"}/$unit"
    done
    put 644 "$here/systemd/80-sqm.preset" "${presets#"$destination"}/80-sqm.preset"
fi
if [ -e "$list" ]; then
    # An upgrade removes the files that the new version does not have.
    sort "$list.new" >"$list.sorted"
    sort "$list" | comm -23 - "$list.sorted" | while read -r file; do rm -f "$destination$file"; done
    rm -f "$list.sorted"
    upgrade=yes
else
    upgrade=no
fi
mv "$list.new" "$list"

if [ -z "$destination" ]; then
    getent passwd sqm-web >/dev/null ||
        useradd --system --user-group --no-create-home --home-dir /var/lib/sqm-web --shell /usr/sbin/nologin sqm-web ||
        echo "install.sh: cannot add the user sqm-web; 'sqm web' needs a user of its own (--user)" >&2
fi
if runs_systemd; then
    systemctl daemon-reload
    if [ "$upgrade" = no ]; then
        systemctl enable --quiet sqm.service
        systemctl start sqm.service || echo "install.sh: see 'systemctl status sqm'" >&2
    elif systemctl is-active --quiet sqm.service; then
        # SIGQUIT: the old daemon leaves its queues and the new one takes them over, so the line stays shaped.
        systemctl kill --kill-who=main --signal=QUIT sqm.service
        systemctl restart sqm.service || echo "install.sh: see 'systemctl status sqm'" >&2
    fi
    systemctl try-restart sqm-web.service sqm-serve.service || true
fi
echo "sqm is installed: $prefix/bin/sqm. Next: sudo sqm setup"
