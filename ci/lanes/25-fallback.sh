#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# The same tests in the environments where rseq is off, ours, numbered otherwise, delayed or hidden; each run says which
# backend it really had. The choice is made once per process, so each needs a run of its own.
. "$(dirname "$0")/../lib.sh"

# What `fastpath-percpu`'s start-up chose, told by a program of its own.
cargo build --quiet -p fastpath-percpu --example backend
backend() { env "$@" target/debug/examples/backend; }

# expect NAME WANTED ENVIRONMENT...: the backend must be the wanted one, then the tests run.
expect() {
    local name=$1 wanted=$2 got
    shift 2
    got=$(backend "$@")
    echo "$name: backend $got"
    case "$got" in $wanted) ;; *) echo "$name: expected $wanted" >&2; exit 1 ;; esac
    env "$@" cargo test --quiet -p fastpath-percpu --tests 2>&1 | grep -E '^(test result|SKIP|test .*FAILED|.*panicked)' | sed "s/^/$name: /"
}

default=$(backend A=B)
echo "default: backend $default"
expect rseq-off 'locked' GLIBC_TUNABLES=glibc.pthread.rseq=0
case "$default" in
rseq*)
    expect own 'rseq-own*' GLIBC_TUNABLES=glibc.pthread.rseq=0 FASTPATH_PERCPU=own
    expect mm_cid 'rseq-mm_cid' FASTPATH_PERCPU_IDS=mm_cid
    ;;
*) skip rseq-here "neither libc nor the kernel has rseq here" ;;
esac
# The crates on top of it, with rseq off.
for crate in alloc slub; do
    GLIBC_TUNABLES=glibc.pthread.rseq=0 cargo test --quiet -p fastpath-$crate --tests 2>&1 |
        grep -E '^(test result|SKIP|test .*FAILED|.*panicked)' | sed "s/^/rseq-off $crate: /"
done

# Delays between the steps of every section: signals and preemptions come exactly there.
RUSTFLAGS="--cfg fastpath_inject" CARGO_TARGET_DIR=target/inject \
    cargo test --quiet -p fastpath-percpu --test this_cpu --test structures 2>&1 |
    grep -E '^(test result|SKIP|test .*FAILED|.*panicked|error)' | sed "s/^/delays: /"

# Under an emulator and under Valgrind there is no rseq: the same binary must find that out and still count exactly.
outside() { # NAME COMMAND...
    local name=$1
    shift
    got=$("$@" target/debug/examples/backend)
    echo "$name: backend $got"
    [ "$got" = locked ] || { echo "$name: expected locked" >&2; exit 1; }
    "$@" target/debug/examples/backend --count
}
if [ "$(uname -m)" = x86_64 ] && need_apt qemu-x86_64-static qemu-user-static; then
    outside qemu-user qemu-x86_64-static
    echo "R6 locked-qemu-user" >>"$FASTPATH_CASE_LOG"
else
    skip qemu-user "qemu-x86_64-static is not available"
fi
if need_apt valgrind valgrind; then
    outside valgrind valgrind -q --error-exitcode=9
    echo "R6 locked-valgrind" >>"$FASTPATH_CASE_LOG"
else
    skip valgrind "valgrind is not available"
fi

# Every descriptor of the binary is well formed however it was linked (R15).
elf() { # NAME FLAGS [PROFILE...]
    local name=$1 flags=$2
    shift 2
    RUSTFLAGS="$flags" CARGO_TARGET_DIR=target/elf cargo test --quiet "$@" -p fastpath-percpu --test sections \
        -- --nocapture every_descriptor 2>&1 | grep -E 'SECTIONS|panicked|FAILED|error' | sed "s/^\.*/elf $name: /"
}
if [ "$(uname -m)" = x86_64 ]; then
    elf pie "-Crelocation-model=pie" --release
    elf static "-Ctarget-feature=+crt-static" --release
    elf not-pie "-Crelocation-model=static" --release
    elf opt-level-0 "-Copt-level=0"
    CARGO_PROFILE_RELEASE_LTO=fat elf fat-lto "" --release
fi
