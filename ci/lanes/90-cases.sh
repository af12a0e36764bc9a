#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# The matrix case × backend of everything that ran before this lane; fails on a gap without a reason.
. "$(dirname "$0")/../lib.sh"
python3 ci/cases.py "$FASTPATH_CASE_LOG"
