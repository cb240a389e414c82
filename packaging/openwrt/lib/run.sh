#!/bin/sh
# For programs that call sqm-scripts: run.sh start|stop|reload [INTERFACE]
case "$1" in
	start | reload) files=write ;;
	stop) files=remove ;;
	*) echo "usage: $0 start|stop|reload [INTERFACE]" >&2; exit 2 ;;
esac
/usr/bin/sqm "$@" || exit $?
exec /usr/lib/sqm/state-files "$files" ${2:+"$2"}
