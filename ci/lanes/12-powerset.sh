#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Every crate builds alone, with each of its features alone, with none, and with all.
. "$(dirname "$0")/../lib.sh"
export CARGO_TARGET_DIR="$ROOT/target/powerset"
CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=false need_cargo_tool cargo-hack 0.6.46
cargo hack check --workspace --each-feature --no-dev-deps --quiet

# What only optional features bring has tests too.
cargo test --quiet --all-features -p fastpath-refcount -p fastpath-rtmutex -p fastpath-alloc
