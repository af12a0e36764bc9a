#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Stops a thread at every instruction of every rseq section, migrates or disturbs it there, and checks the outcome.
. "$(dirname "$0")/../lib.sh"
cargo run --release --quiet -p fastpath-abort
