#!/bin/sh
# For programs that call sqm-scripts: run.sh start|stop|reload [INTERFACE]
case "$1" in
	start | stop | reload) exec /usr/bin/sqm "$@" ;;
	*) echo "usage: $0 start|stop|reload [INTERFACE]" >&2; exit 2 ;;
esac
