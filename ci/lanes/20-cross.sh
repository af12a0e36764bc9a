#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compiles the core-only crates, warnings denied, for every target they are meant for, and compares the machine code of
# fastpath-cmpxchg's fast paths with ci/golden/cmpxchg.txt. The compiler is Debian's rustc-web, which has the library's
# source (rust-web-src): none of these targets needs anything downloaded.
# Budget: 5 minutes on two idle cores; `core` is built once per target, two targets at a time.
. "$(dirname "$0")/../lib.sh"
ci/cross-toolchain.sh || { skip cross-toolchain "rustc-web and rust-web-src cannot be installed"; exit 0; }

# target | flags of a variant of it ... | crates besides cmpxchg that are built for it too
single=--cfg=fastpath_assume_single_core
table="
x86_64-unknown-none         |                                | rest
i686-unknown-linux-gnu      |                                | rest
aarch64-unknown-none        | , +lse                         | rest
armv7a-none-eabi            |                                | rest
armv6-none-eabi             |                                | rest
armv5te-none-eabi           |                                | rest
thumbv6m-none-eabi          | $single                        | rest
thumbv7m-none-eabi          |                                | rest
riscv64gc-unknown-none-elf  | , +zacas                       | rest
riscv32imc-unknown-none-elf | $single                        | rest
riscv32imac-unknown-none-elf|                                | rest
"

one() { # TARGET VARIANTS EXTRA: everything of one target, output in its log
    local target=$1 variants=$2 extra=$3 variant flags name assembly
    cd ci/golden
    export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_DIR="$ROOT/target/cross/$target" CARGO_BUILD_JOBS=1
    export RUSTFLAGS="-D warnings"
    mkdir -p "$CARGO_TARGET_DIR"
    IFS=, read -ra variants <<<"${variants:- }"
    for variant in "${variants[@]}"; do
        variant=$(echo $variant) name=$target flags=""
        case $variant in
            +*) name=$target$variant flags="\"-Ctarget-feature=$variant\"" ;;
            -*) flags="\"$variant\"" ;;
        esac
        # Nothing old: the assembly is written only when the crate is compiled.
        rm -rf "$CARGO_TARGET_DIR/$target/debug"/{deps/fastpath_golden-*,.fingerprint/fastpath-golden-*}
        cargo rustc --quiet -Zbuild-std=core --target "$target" -Zprofile-rustflags \
            ${extra:+--features $extra} \
            --config "profile.dev.package.fastpath-cmpxchg.rustflags=[$flags]" \
            --config "profile.dev.package.fastpath-golden.rustflags=[$flags]" -- --emit=asm >"$CARGO_TARGET_DIR/output" 2>&1 ||
            { cat "$CARGO_TARGET_DIR/output"; return 1; }
        assembly=$(ls "$CARGO_TARGET_DIR/$target/debug/deps"/fastpath_golden-*.s)
        "$ROOT/ci/golden-asm.py" "$ROOT/ci/golden/cmpxchg.txt" "$name" "$assembly" || return 1
    done
    # Where interrupts-off is all there is and nobody says that there is one processor, the crate must not compile.
    if [ "${variants[0]# }" = "$single " ] || [ "$(echo ${variants[0]})" = "$single" ]; then
        if cargo rustc --quiet -Zbuild-std=core --target "$target" >"$CARGO_TARGET_DIR/refused" 2>&1; then
            echo "CROSS $target: compiles without $single, which it must not"
            return 1
        fi
        grep -q "fastpath_assume_single_core" "$CARGO_TARGET_DIR/refused" || { cat "$CARGO_TARGET_DIR/refused"; return 1; }
        echo "CROSS $target: refused without $single"
    fi
    case $extra in
        rest) echo "CROSS $target: ok, with the other core-only crates" ;;
        *) echo "CROSS $target: ok" ;;
    esac
}

mkdir -p target/cross
rm -f target/cross/*.log target/cross/*.status
status=0 count=0
while IFS='|' read -r target variants extra; do
    target=$(echo $target) extra=$(echo $extra)
    [ -n "$target" ] || continue
    [ $# -eq 0 ] || [[ " $* " == *" $target "* ]] || continue
    count=$((count + 1))
    (
        if one "$target" "$(echo "$variants")" "$extra" >"$ROOT/target/cross/$target.log" 2>&1; then
            echo 0 >"$ROOT/target/cross/$target.status"
        else
            echo 1 >"$ROOT/target/cross/$target.status"
        fi
    ) &
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
done <<<"$table"
wait
for log in target/cross/*.log; do
    target=$(basename "$log" .log)
    cat "$log"
    [ "$(cat "target/cross/$target.status")" = 0 ] || { echo "CROSS $target: FAILED"; status=1; }
done
echo "cross: $count targets, $(grep -h '^GOLDEN .*checked' target/cross/*.log | awk '{n += $3} END {print n}') fast paths"
exit $status
