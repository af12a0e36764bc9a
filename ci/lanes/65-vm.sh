#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Our test programs on other kernels: Linux 6.1 with 16 CPUs and CPUs unplugged, PREEMPT_RT. See vm/machines.toml.
. "$(dirname "$0")/../lib.sh"
if ! need_apt qemu-system-x86_64 qemu-system-x86 || ! need_apt qemu-system-aarch64 qemu-system-arm ||
    ! need_apt aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross ||
    ! need_apt aarch64-linux-gnu-g++ g++-aarch64-linux-gnu libstdc++-12-dev-arm64-cross; then
    skip vm "QEMU's system emulators or the AArch64 C and C++ compilers are not installable"
    exit 0
fi
[ -e /usr/lib/rustlib/src/rust/library/std/Cargo.toml ] || apt_install rustc-web rust-web-src || true
status=0
for machine in $(python3 vm/run.py --list); do
    python3 vm/run.py "$machine" || status=1
done
exit $status
