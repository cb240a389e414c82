#!/bin/sh
# Sends schemathesis' requests, made from docs/openapi.yaml, to a server with a daemon whose only device does not exist. No response
# may be a server error or undocumented. Leaves out event streams, and requests that take seconds.
# Usage: schemathesis.sh PROGRAM [SECONDS]; needs python3-venv, curl and the permission to make a network namespace.
set -eu

program=$(realpath "$1")
seconds=${2:-300}
here=$(cd "$(dirname "$0")" && pwd)
tool=${XDG_CACHE_HOME:-$HOME/.cache}/sqm/schemathesis
[ -x "$tool/bin/schemathesis" ] || {
    python3 -m venv "$tool"
    "$tool/bin/pip" install --quiet schemathesis==4.32.5
}
folder=$(mktemp -d)
map=
[ "$(id -u)" = 0 ] || map=--map-root-user
printf "config queue\n\toption enabled '1'\n\toption interface 'sqm-none0'\n\toption download '85000'\n\toption upload '10000'\n\toption script 'piece_of_cake.qos'\n" >"$folder/sqm.conf"
unshare --net $map "$program" daemon --config "$folder/sqm.conf" --state-dir "$folder/state" 2>"$folder/daemon.log" &
daemon=$!
"$program" web --listen 127.0.0.1:0 --socket "$folder/state/api.sock" --dir "$folder/web" 2>"$folder/web.log" &
web=$!
trap 'kill $web $daemon 2>/dev/null; wait; rm -rf "$folder"' EXIT
trap 'exit 130' HUP INT TERM
until grep -q 'the page is at' "$folder/web.log" && [ -S "$folder/state/api.sock" ]; do sleep 0.1; done
address=$(sed -n 's/.*the page is at \(.*\)\/$/\1/p' "$folder/web.log")
token=$(curl -s "$address/api/v1/session" | sed 's/.*"token":"\([^"]*\)".*/\1/')
cd "$folder"
"$tool/bin/schemathesis" run "$here/../../../../docs/openapi.yaml" --url "$address/api/v1" -H "X-SQM-Token: $token" \
    --exclude-path-regex '/live$|/events$|/report$|/doctor' --phases coverage,fuzzing -n 1000 \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method \
    --max-time "$seconds" --request-timeout 10
grep VmHWM "/proc/$web/status"
