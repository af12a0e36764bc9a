#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# The AArch64 sections: assembled into the tests' programs, their descriptors and signatures checked in the binary, and the
# programs run under qemu-user, which has no rseq (so: the locked backend; the sections themselves run in the VM lane).
. "$(dirname "$0")/../lib.sh"
target=aarch64-unknown-linux-gnu
[ -e /usr/lib/rustlib/src/rust/library/std/Cargo.toml ] || apt_install rustc-web rust-web-src || true
if [ ! -x /usr/bin/rustc ] || [ ! -e /usr/lib/rustlib/src/rust/library/std/Cargo.toml ] || ! need_apt aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross ||
    ! need_apt qemu-aarch64-static qemu-user-static; then
    skip cross-toolchain "Debian's rustc-web, rust-web-src, gcc-aarch64-linux-gnu or qemu-user-static are missing"
    exit 0
fi
export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_DIR=$ROOT/target/cross
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export RUSTFLAGS="-Ctarget-feature=+crt-static"
programs=$(cargo test --quiet -Zbuild-std --target $target -p fastpath-percpu --test this_cpu --test structures --no-run \
    --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
[ -n "$programs" ]
for program in $programs; do
    # Every descriptor is 32 bytes; every abort handler is preceded by brk #0x45e0.
    size=$((0x$(aarch64-linux-gnu-objdump -h "$program" | awk '$2 == "__rseq_cs" { print $3 }')))
    signatures=$(aarch64-linux-gnu-objdump -d "$program" | grep -c 'brk[[:space:]]*#0x45e0')
    echo "$(basename "$program"): $((size / 32)) descriptors, $signatures signatures"
    [ "$((size / 32))" -gt 4 ] && [ "$signatures" -ge "$((size / 32))" ]
    FASTPATH_TEST_QUICK=1 qemu-aarch64-static "$program" --test-threads 2 2>&1 | grep -E '^(test result|SKIP|.*FAILED|.*panicked)'
done
echo "R6 locked-qemu-aarch64" >>"$FASTPATH_CASE_LOG"
