#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# libfastpath under load, in every mode: threads that trade blocks, signal storms, 300 forks of a busy process. Then
# what a bug in the program comes to, by mode, and the instructions of the exported fast paths.
. "$(dirname "$0")/../lib.sh"
need_apt cc gcc libc6-dev || { skip malloc-no-compiler "no C compiler"; exit 0; }
need_apt c++ g++ || true
need_apt musl-gcc musl-tools || true
need_apt objdump binutils || true
need_apt pkg-config pkg-config || true
cargo fmt --check --manifest-path crates/malloc/Cargo.toml
cargo clippy --quiet --release --manifest-path crates/malloc/Cargo.toml --target-dir target/malloc -- -D warnings
cargo build --quiet --release --manifest-path crates/malloc/Cargo.toml --target-dir target/malloc
library=$ROOT/target/malloc/release/libfastpath.so
churn=$ROOT/target/malloc/churn
cc -O1 -w -fno-builtin -pthread -o "$churn" crates/malloc/tests/programs/churn.c

run() {
    local name=$1
    shift
    echo "churn, $name: $(env LD_PRELOAD="$library" "${@}" 2>&1)"
}
for mode in FASTPATH_FRONT=sheaf GLIBC_TUNABLES=glibc.pthread.rseq=0 FASTPATH_FRONT=tid FASTPATH_FRONT=trylock FASTPATH_FRONT=direct FASTPATH_DEBUG=FZP; do
    size=60000
    [ "$mode" = FASTPATH_DEBUG=FZP ] && size=8000
    run "$mode" "$mode" timeout 300 "$churn" 4 $size
    run "$mode, signals" "$mode" timeout 300 "$churn" 4 $((size / 3)) signals
    run "$mode, 300 forks" "$mode" timeout 300 "$churn" 4 $((size / 2)) forks=300
done
# An emulator without restartable sequences, whose auxiliary vector is its own.
if need_apt valgrind valgrind; then
    run valgrind FASTPATH_FRONT=sheaf timeout 300 valgrind --quiet --tool=none "$churn" 4 2000
else
    skip malloc-no-valgrind "Valgrind cannot be installed"
fi
# The system's promise of memory turned strict for a moment.
if (echo "$(cat /proc/sys/vm/overcommit_memory)" >/proc/sys/vm/overcommit_memory) 2>/dev/null; then
    before=$(cat /proc/sys/vm/overcommit_memory)
    trap 'echo "$before" >/proc/sys/vm/overcommit_memory' EXIT
    echo 2 >/proc/sys/vm/overcommit_memory
    run "no overcommit" FASTPATH_FRONT=sheaf timeout 300 "$churn" 4 20000
    run "no overcommit, forks" FASTPATH_FRONT=tid timeout 300 "$churn" 4 20000 forks=30
    echo "$before" >/proc/sys/vm/overcommit_memory
    trap - EXIT
else
    skip malloc-no-overcommit "/proc/sys/vm/overcommit_memory cannot be written"
fi
cargo test --quiet -p fastpath --test libfastpath -- --nocapture misuse fast_paths
cargo test --quiet -p fastpath --test surroundings
