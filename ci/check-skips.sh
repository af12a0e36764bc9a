#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fails on any recorded skip whose name is not in ci/allowed-skips.txt.
. "$(dirname "$0")/lib.sh"
status=0
while IFS= read -r name; do
    grep -v '^#' ci/allowed-skips.txt | cut -d'|' -f1 | sed 's/[[:space:]]*$//' | grep -qxF "$name" ||
        { echo "unlisted skip: $name (add it to ci/allowed-skips.txt with its reason, or make the test run)"; status=1; }
done < <(cut -d: -f1 "$FASTPATH_SKIP_LOG" | sort -u)
exit $status
