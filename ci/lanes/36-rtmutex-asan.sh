#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# A million locks, each freed right after its unlock by another thread, under AddressSanitizer (K87).
. "$(dirname "$0")/../lib.sh"
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal >/dev/null 2>&1 || true
fi
if ! rustup run nightly rustc --version; then
    skip rtmutex-asan "no nightly toolchain, so no AddressSanitizer"
    exit 0
fi
host=$(rustc -vV | sed -n 's/^host: //p')
# Tasks and one-off objects of the tests are leaked on purpose.
ASAN_OPTIONS=detect_leaks=0 FASTPATH_FREED_LOCKS=1000000 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR="$ROOT/target/asan" \
    rustup run nightly cargo test --quiet --release --target "$host" -p fastpath-rtmutex --no-default-features \
    --test kernel_threads -- --nocapture
echo "rtmutex-asan: 1000000 locks freed right after their unlock, $host, AddressSanitizer"
