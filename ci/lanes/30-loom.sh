#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Every loom model of the workspace (crates/*/tests/loom*.rs): each prints and asserts how much it explored.
. "$(dirname "$0")/../lib.sh"
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$ROOT/target/loom"
for test in crates/*/tests/loom*.rs; do
    crate=fastpath-$(basename "$(dirname "$(dirname "$test")")")
    cargo test --quiet --release -p "$crate" --test "$(basename "$test" .rs)" -- --nocapture
done
