#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# The crates as they would be published: packed, unpacked side by side, and the command built from there alone. It must
# carry the library, serve a program and its children from any folder, and leave nothing behind.
. "$(dirname "$0")/../lib.sh"
rm -rf target/package
# Away from this workspace, so that nothing of it is found by accident.
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
cargo package --quiet --workspace --exclude fastpath-testkit --exclude fastpath-abort --allow-dirty --no-verify
mkdir "$away/packages"
patches=()
for file in target/package/*.crate; do
    tar -xzf "$file" -C "$away/packages"
    name=$(basename "$file" .crate)
    patches+=(--config "patch.crates-io.${name%-*}.path='$away/packages/$name'")
done
echo "packed: $(ls "$away/packages" | tr '\n' ' ')"
package=$(echo "$away"/packages/fastpath-[0-9]*)
CARGO_TARGET_DIR=$ROOT/target/package-build cargo install --quiet --debug --path "$package" --root "$away" "${patches[@]}"
before=$(find /tmp /dev/shm -maxdepth 1 -name '*fastpath*' | sort)
cd /
maps=$("$away/bin/fastpath" run -- sh -c 'grep fastpath /proc/self/maps')
[ -n "$maps" ] || { echo "the library is not in the child's maps"; exit 1; }
"$away/bin/fastpath" run --stats -- sh -c 'sort /etc/passwd >/dev/null; exit 3' >/dev/null 2>"$away/statistics" && exit 1
[ "$(find /tmp /dev/shm -maxdepth 1 -name '*fastpath*' | sort)" = "$before" ] || { echo "something was left behind"; exit 1; }
processes=$(grep -c 'sheaf/' "$away/statistics") || { cat "$away/statistics"; exit 1; }
echo "the installed command served $processes processes from / and left nothing behind"
