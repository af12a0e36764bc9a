#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# The machine code of a counting site: one locked instruction, at most two arithmetic ones, one branch that is not taken,
# and a cold call. Prints the bytes of a site beside other forms of it. Also runs the crate's tests with every feature.
. "$(dirname "$0")/../lib.sh"
cargo test --quiet -p fastpath-refcount --all-features
if [ "$(uname -m)" != x86_64 ]; then
    skip refcount-asm "the expected code is written down for x86-64 only"
    exit 0
fi
need_apt objdump binutils || { echo "objdump is missing" >&2; exit 1; }
cargo build --quiet --release -p fastpath-refcount --example asm_probe
probe=${CARGO_TARGET_DIR:-target}/release/examples/asm_probe
"$probe"
objdump -d -M intel "$probe" | python3 ci/refcount_asm.py
