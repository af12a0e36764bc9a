#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# `fastpath bench --quick` on every family: its results fit the schema by an independent validator, its page carries
# them, and a comparison with itself finds nothing. No figure is judged here: the machine may be busy.
. "$(dirname "$0")/../lib.sh"
cargo build --release --quiet -p fastpath
fastpath=$ROOT/target/release/fastpath
out=$ROOT/target/bench-quick
mkdir -p "$out"
start=$(date +%s)
"$fastpath" bench --quick all --json "$out/a.json" --html "$out/a.html"
echo "all families in $(($(date +%s) - start)) s (20 s on an idle machine)"
"$fastpath" bench compare "$out/a.json" "$out/a.json"
"$fastpath" bench show "$out/a.json" >/dev/null
# Every family of the command line was measured, and every target was judged.
python3 - "$out/a.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
names = [family["name"] for family in report["families"]]
assert names == ["cmpxchg", "percpu", "slab", "refcount", "rtmutex", "open-close"], names
targets = [target for family in report["families"] for target in family["targets"]]
cells = sum(len(table["cells"]) for family in report["families"] for table in family["tables"])
print(f"{len(names)} families, {cells} figures, {len(targets)} targets of which {sum(t['met'] for t in targets)} met")
assert cells > 100 and len(targets) > 5
PYTHON
if python3 -c 'import jsonschema' 2>/dev/null || { apt_install python3-jsonschema && python3 -c 'import jsonschema' 2>/dev/null; }; then
    python3 - docs/bench-schema.json "$out/a.json" <<'PYTHON'
import importlib.metadata, json, sys, jsonschema
schema, report = (json.load(open(name)) for name in sys.argv[1:])
validator = getattr(jsonschema, "Draft202012Validator", None) or jsonschema.Draft7Validator
validator.check_schema(schema)
validator(schema).validate(report)
print("the results fit docs/bench-schema.json by jsonschema", importlib.metadata.version("jsonschema"))
PYTHON
else
    skip bench-schema-validator "python3-jsonschema cannot be installed"
fi
