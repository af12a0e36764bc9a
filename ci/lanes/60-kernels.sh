#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the bare-metal images of kernels/ and runs each in QEMU: they run the contract suites under real timer
# interrupts and on all their processors, and print TAP. An image passes if it exits with status 0 and prints exactly
# the lines that the host prints for the same suites. A watchdog ends what hangs.
# At the end three of them print the tables in instructions (docs/ICOUNT.md) into target/kernels/logs/icount-MACHINE.log.
# `60-kernels.sh MACHINE...` runs only the named ones, `ICOUNT=0` without the tables. Budget: 4 minutes on two idle cores, of which compiling is 3.
. "$(dirname "$0")/../lib.sh"
ci/cross-toolchain.sh || { skip cross-toolchain "rustc-web and rust-web-src cannot be installed"; exit 0; }
WATCHDOG=${WATCHDOG:-180}

# machine | target | flags of the variant | status of a pass | emulator and its arguments
semihosting="-semihosting-config enable=on,target=native"
quiet="-nographic -monitor none -audiodev none,id=a"
table="
armv5      | armv5te-none-eabi          |      | 0 | qemu-system-arm -M versatilepb $quiet -serial null $semihosting -kernel
raspi0     | armv6-none-eabi            |      | 0 | qemu-system-arm -M raspi0 $quiet -serial null $semihosting -kernel
cubieboard | armv7a-none-eabi           |      | 0 | qemu-system-arm -M cubieboard $quiet -serial null $semihosting -kernel
microbit   | thumbv6m-none-eabi         |      | 0 | qemu-system-arm -M microbit $quiet -serial null $semihosting -kernel
x86_64     | x86_64-unknown-none        |      | 33 | qemu-system-x86_64 -M q35 -cpu max -smp 4 -accel tcg $quiet -serial stdio -no-reboot -device isa-debug-exit,iobase=0xf4,iosize=1 -kernel
riscv64    | riscv64gc-unknown-none-elf |      | 0 | qemu-system-riscv64 -M virt -smp 4 -bios none $quiet -serial stdio -kernel
aarch64    | aarch64-unknown-none-softfloat | | 0 | qemu-system-aarch64 -M virt -cpu cortex-a57 -smp 4 $quiet -serial stdio $semihosting -kernel
aarch64-lse | aarch64-unknown-none-softfloat | target.aarch64-unknown-none-softfloat.rustflags=['-Ctarget-feature=+lse'] | 0 | qemu-system-aarch64 -M virt -cpu max -smp 4 $quiet -serial stdio $semihosting -kernel
"

need_apt qemu-system-arm qemu-system-arm && need_apt qemu-system-x86_64 qemu-system-x86 &&
    need_apt qemu-system-riscv64 qemu-system-misc || { skip kernels-qemu "QEMU cannot be installed"; exit 0; }
lld=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/host: //p')/bin/rust-lld
logs=$ROOT/target/kernels/logs
mkdir -p "$logs"

build() { # MACHINE TARGET FLAGS [PROFILE OPTIONS...]: prints the image's path
    local directory="$ROOT/target/kernels/$1" variable profile=${4:-debug}
    variable=CARGO_TARGET_$(echo "$2" | tr a-z- A-Z_)_LINKER
    (cd kernels && env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_DIR="$directory" "$variable=$lld" \
        cargo build --quiet -Zbuild-std=core --target "$2" -p "kernel-${1%-*}" ${3:+--config "$3"} "${@:5}" >&2) || return 1
    echo "$directory/$2/$profile/kernel-${1%-*}"
}

# The reference: the same tests as a program of this host.
(cd kernels && CARGO_TARGET_DIR="$ROOT/target/kernels/hosted" cargo run --quiet -p kernel-hosted) | grep . >"$logs/host.tap"
plan=$(grep '^1\.\.' "$logs/host.tap")
echo "KERNEL host: plan $plan"

status=0 machines=0
while IFS='|' read -r -u 3 machine target flags pass command; do
    machine=$(echo $machine) target=$(echo $target) flags=$(echo $flags) pass=$(echo $pass)
    [ -n "$machine" ] || continue
    [ $# -eq 0 ] || [[ " $* " == *" $machine "* ]] || continue
    machines=$((machines + 1))
    image=$(build "$machine" "$target" "$flags") || { echo "KERNEL $machine: does not build"; status=1; continue; }
    code=0
    # shellcheck disable=SC2086
    timeout --kill-after=5 $WATCHDOG $command "$image" </dev/null >"$logs/$machine.out" 2>&1 || code=$?
    tr -d '\r' <"$logs/$machine.out" | grep -E '^(TAP|1\.\.|ok|not ok|Bail|#)' >"$logs/$machine.tap" || true
    if [ "$code" = "$pass" ] && diff <(grep -v '^#' "$logs/host.tap") <(grep -v '^#' "$logs/$machine.tap" | sed 's/ # SKIP .*//') >"$logs/$machine.diff"; then
        echo "KERNEL $machine: $(sed -n 's/^# machine //p' "$logs/$machine.tap"): plan $plan, $(grep -c '^ok' "$logs/$machine.tap") ok, of which skipped $(grep -c '# SKIP' "$logs/$machine.tap" || true)"
        sed -n 's/\r//; s/^extra ok/KERNEL '"$machine"': extra ok/p' "$logs/$machine.out"
    else
        echo "KERNEL $machine: FAILED (status $code, expected $pass; 124 is the watchdog)"
        cat "$logs/$machine.out" "$logs/$machine.diff" 2>/dev/null || true
        status=1
    fi
done 3<<<"$table"
echo "kernels: $machines machines, $plan each"
[ "${ICOUNT:-1}" = 1 ] || exit $status

icount="-nographic -icount shift=0,align=off,sleep=off"
# The tables in instructions. Exactly repeatable for one compiler, so there is nothing to compare with a limit.
while IFS='|' read -r -u 3 machine target flags pass command; do
    machine=$(echo $machine) target=$(echo $target) pass=$(echo $pass)
    case $machine in armv5 | raspi0 | cubieboard | x86_64) ;; *) continue ;; esac
    [ $# -eq 0 ] || [[ " $* " == *" $machine "* ]] || continue
    image=$(build "$machine" "$target" "" release --release --features kernel-harness/icount) ||
        { echo "ICOUNT $machine: does not build"; status=1; continue; }
    code=0
    # shellcheck disable=SC2086
    timeout --kill-after=5 $WATCHDOG ${command/-nographic/$icount} "$image" \
        </dev/null >"$logs/icount-$machine.log" 2>&1 || code=$?
    figures=$(grep -ac '^bench ' "$logs/icount-$machine.log" || true)
    echo "ICOUNT $machine: $figures figures"
    if [ "$code" != "$pass" ] || [ "$figures" != 28 ]; then
        echo "ICOUNT $machine: FAILED (status $code, expected $pass and 28 figures)"
        cat "$logs/icount-$machine.log"
        status=1
    fi
done 3<<<"$table"
exit $status
