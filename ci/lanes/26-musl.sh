#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Own registration on a libc that knows nothing of rseq: 60,000 short detached threads in a static musl program (R9).
. "$(dirname "$0")/../lib.sh"
if [ "$(uname -m)" != x86_64 ] || ! need_apt musl-gcc musl-tools; then
    skip musl "musl-gcc is not available"
    exit 0
fi
export CARGO_TARGET_DIR=$ROOT/target/musl
cargo build --quiet --release --manifest-path crates/percpu/musl/Cargo.toml
program=$CARGO_TARGET_DIR/threads
musl-gcc -O2 -Wall -Werror -static -o "$program" crates/percpu/musl/main.c "$CARGO_TARGET_DIR/release/libfastpath_percpu_musl.a"
for _ in 1 2; do "$program" 60000 | tee "$CARGO_TARGET_DIR/threads.log"; done
if grep -qx 'own registration: 1' "$CARGO_TARGET_DIR/threads.log"; then
    echo "R9 rseq-own-musl" >>"$FASTPATH_CASE_LOG"
else
    skip musl "the kernel has no rseq here: the program counted with locked operations"
fi
