#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Our test programs on other kernels: Linux 6.1 with 16 CPUs and CPUs unplugged, PREEMPT_RT. See vm/machines.toml.
. "$(dirname "$0")/../lib.sh"
if ! need_apt qemu-system-x86_64 qemu-system-x86; then
    # Some machines carry a newer qemu-utils that conflicts with the distribution's emulator; it is not needed here.
    apt_install qemu-system-x86 qemu-utils- || true
fi
if ! have qemu-system-x86_64; then
    skip vm "qemu-system-x86_64 is not installable"
    exit 0
fi
status=0
for machine in $(python3 vm/run.py --list); do
    python3 vm/run.py "$machine" || status=1
done
exit $status
