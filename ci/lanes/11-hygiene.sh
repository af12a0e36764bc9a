#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Licences (REUSE), dependencies (cargo deny, unused ones), the stated MSRV, and the tidy rules no lint can see.
. "$(dirname "$0")/../lib.sh"

have reuse || pip install --quiet reuse 2>/dev/null || pip install --quiet --break-system-packages reuse
reuse lint --lines

# cargo deny takes minutes to build: without optimisation it is quick enough.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=false
need_cargo_tool cargo-machete 0.9.2
need_cargo_tool cargo-deny 0.20.2
unset CARGO_PROFILE_RELEASE_OPT_LEVEL CARGO_PROFILE_RELEASE_DEBUG
cargo deny --all-features --log-level warn check bans licenses sources
skip deny-advisories "the advisory database needs a network"
cargo machete

# The MSRV: the toolchain that builds here must be able to be the stated one, and clippy reads it from the manifest.
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
running=$(rustc --version | cut -d' ' -f2)
echo "MSRV stated $msrv, running $running"
case "$running" in
"$msrv".*) ;;
*) if cargo "+$msrv" --version >/dev/null 2>&1; then cargo "+$msrv" check --workspace --all-targets --quiet; else skip msrv "rustc $msrv is not installed"; fi ;;
esac

ci/tidy.py
