# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What every lane starts with:   . "$(dirname "$0")/../lib.sh"
# A lane exits 0 only if all it ran passed. What cannot run here is said with `skip NAME REASON`, and counted.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
LANE=$(basename "$0" .sh)
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
export FASTPATH_RECORDS=${FASTPATH_RECORDS:-$ROOT/target/ci-records}
mkdir -p "$FASTPATH_RECORDS"
export FASTPATH_SKIP_LOG="$FASTPATH_RECORDS/skips.log"
export FASTPATH_CASE_LOG="$FASTPATH_RECORDS/cases.log"

# skip NAME REASON: what a lane cannot run on this machine. Must be listed in ci/allowed-skips.txt.
skip() {
    echo "SKIP $1: $2" >&2
    echo "$1: $2" >>"$FASTPATH_SKIP_LOG"
}

# have PROGRAM: is it there?
have() { command -v "$1" >/dev/null 2>&1; }

# need_apt PROGRAM PACKAGE...: makes sure PROGRAM exists, installing Debian packages if it can. Returns 1 if it cannot.
need_apt() {
    local program=$1
    shift
    have "$program" && return 0
    apt_install "$@" || true
    have "$program"
}

# apt_install PACKAGE...: installs Debian packages, updating the package lists once per run.
apt_install() {
    have apt-get || return 1
    if [ ! -e "$FASTPATH_RECORDS/apt-updated" ]; then
        apt-get -qq update >/dev/null 2>&1 || return 1
        touch "$FASTPATH_RECORDS/apt-updated"
    fi
    # Some images carry a newer qemu-utils that conflicts with the distribution's emulators; nothing here needs it.
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null 2>&1 ||
        DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" qemu-utils- >/dev/null 2>&1
}

# need_cargo_tool NAME VERSION: a cargo subcommand, built once into target/tools.
need_cargo_tool() {
    export PATH="$ROOT/target/tools/bin:$PATH"
    have "$1" && return 0
    cargo install --quiet --locked --root "$ROOT/target/tools" "$1@$2"
}
