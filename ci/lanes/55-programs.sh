#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified programs on the embedded library: same output as on the system's allocator, and proof that it served.
. "$(dirname "$0")/../lib.sh"
cargo build --release --quiet -p fastpath
python3 ci/programs.py target/release/fastpath
