#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes sure that /usr/bin/rustc can build `core` from source: Debian's rustc-web and rust-web-src, the same version.
. "$(dirname "$0")/lib.sh"
ready() {
    [ -x /usr/bin/rustc ] && [ -e "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ]
}
ready || apt_install rustc-web rust-web-src || true
ready || { echo "no /usr/bin/rustc with library source"; exit 1; }
/usr/bin/rustc --version
