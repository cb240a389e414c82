#!/bin/sh
# Installs the real Flent, with which tests open our result files: the version of Debian 12 and a newer one, each with its plotting
# library in its own Python environment. Prints nothing if both are installed.
set -eu

folder="${XDG_CACHE_HOME:-$HOME/.cache}/sqm/flent"

# Usage: install FLENT MATPLOTLIB NUMPY
install() {
    environment="$folder/$1"
    # This file is written last, so that an interrupted installation is not taken for a complete one.
    [ ! -e "$environment/complete" ] || return 0
    echo "Installing Flent $1 into $environment" >&2
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "flent==$1" "matplotlib$2" "numpy$3" "setuptools<81"
    touch "$environment/complete"
}

"$(dirname "$0")/deps.sh" flent
install 2.1.1 "==3.6.3" "<1.27"
install 2.3.0 ">=3.9" ">=2"
