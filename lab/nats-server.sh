#!/bin/sh
# Installs the servers with which the fleet is tested: Debian's nats-server and a current one, built from its Go module. Prints the path
# of each on a line of its own.
set -eu

version=2.15.2
# For a Go before 1.21, which cannot fetch a newer one by itself: this one is a Go module, too.
go_version=1.26.0
folder="${XDG_CACHE_HOME:-$HOME/.cache}/sqm/nats-server/$version"

"$(dirname "$0")/deps.sh" nats
if [ ! -x "$folder/nats-server" ]; then
    mkdir -p "$folder"
    # One build at a time: a second caller waits here and then finds the finished program.
    exec 9>"$folder/build.lock"
    flock 9
fi
if [ ! -x "$folder/nats-server" ]; then
    echo "Building nats-server $version, once, about 2 minutes on 2 cores" >&2
    work=$(mktemp -d "$folder/build.XXXXXX")
    trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    export GOPATH="$work" GOBIN="$work/bin" GOCACHE="$work/cache" GOFLAGS=-modcacherw CGO_ENABLED=0
    go=go
    case $(go env GOVERSION) in
        go1.? | go1.?.* | go1.1? | go1.1?.* | go1.20 | go1.20.*)
            toolchain="golang.org/toolchain@v0.0.1-go$go_version.linux-$(go env GOARCH)"
            # The module's files come without the permission to run them.
            GOROOT=$(go mod download -json "$toolchain" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
            export GOROOT
            chmod -R u+x "$GOROOT/bin" "$GOROOT/pkg/tool"
            go="$GOROOT/bin/go"
            ;;
    esac
    "$go" install "github.com/nats-io/nats-server/v2@v$version"
    mv "$work/bin/nats-server" "$folder/nats-server"
fi
command -v nats-server
echo "$folder/nats-server"
