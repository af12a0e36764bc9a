#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Each patch of mutants/ breaks one rule of the design: the test it names must fail.
. "$(dirname "$0")/../lib.sh"
python3 ci/mutants.py
