#!/usr/bin/env bash
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
# What shows the inside of a heap: profiles, leaks, limits, the live view, metrics; and every command of the page "Is it the
# allocator?", as it stands there. Tools of others read our files: pprof, Prometheus's parser.
. "$(dirname "$0")/../lib.sh"
need_apt cc gcc libc6-dev || { skip malloc-no-compiler "no C compiler"; exit 0; }
need_apt tmux tmux || true
need_apt python3 python3 || true
cargo build --quiet --release -p fastpath -p fastpath-example-growing-rss
cargo test --quiet -p fastpath --test profile --test limits --test watch -- --nocapture
export PATH="$ROOT/target/release:$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The page's commands: every line of its shell blocks but the build, in order. `wait &` and `--listen` go on until we end them.
commands=0
server='' input=''
while IFS= read -r line; do
    case $line in
    '' | cargo\ *) continue ;;
    *' wait &')
        mkfifo stdin
        eval "${line% &} <stdin >server.log 2>&1 &"
        exec {input}>stdin
        for _ in $(seq 300); do
            server=$(pgrep -n -x growing-rss || true)
            [ -n "$server" ] && grep -q sessions server.log && break
            sleep 0.1
        done
        ;;
    *--listen*)
        # Without our end of the server's input, or that would never close.
        eval "{ exec $input>&-; exec ${line//9464/0}; } >listen.log &"
        listening=$!
        for _ in $(seq 100); do [ -s listen.log ] && break; sleep 0.1; done
        python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' "$(cat listen.log)" >scraped.txt
        ;;
    *) eval "$line" >>page.log 2>&1 || { echo "the page's command failed: $line" >&2; tail -20 page.log >&2; exit 1; } ;;
    esac
    commands=$((commands + 1))
done < <(awk '/^```sh/ {on = 1; next} /^```/ {on = 0} on' "$ROOT/docs/IS-IT-THE-ALLOCATOR.md")
echo "docs/IS-IT-THE-ALLOCATOR.md: $commands commands"
[ "$commands" -ge 10 ]
grep -q 'open_session' page.log || { echo "the cause is not named" >&2; exit 1; }
fastpath prof heap.pb.gz | awk 'NR == 4' | grep -q open_session || { fastpath prof heap.pb.gz >&2; exit 1; }
grep -q '<svg' heap.html
grep -q '^fastpath_small_bytes ' scraped.txt
exec {input}>&-
(sleep 60; kill "$listening") 2>/dev/null &
watchdog=$!
wait "$listening"
kill "$watchdog" 2>/dev/null || true

# pprof's own tool, the old one of gperftools reads another format.
if need_apt go golang-go; then
    # A Rust program: its code starts in the middle of a page, as this linker lays it out.
    go tool pprof -sample_index=inuse_space -top heap.pb.gz >top.txt 2>&1
    grep -q '^Type: inuse_space' top.txt && sed -n 6p top.txt | grep -q open_session || { cat top.txt >&2; exit 1; }
    # A C program's functions by name.
    cc -O1 -g -w -fno-builtin -pthread -o sampled "$ROOT/crates/malloc/tests/programs/sampled.c"
    FASTPATH_PROFILE=c.pb.gz fastpath run -- ./sampled >/dev/null
    go tool pprof -top c.pb.gz >top.txt 2>&1
    grep -q site_small top.txt && grep -q site_growing top.txt || { cat top.txt >&2; exit 1; }
    echo "pprof: $(grep -m1 site_small top.txt)"
else
    skip see-pprof "no Go toolchain"
fi
# Prometheus's parser.
if python3 -m venv venv >/dev/null 2>&1 && venv/bin/pip -q install prometheus_client >/dev/null 2>&1; then
    venv/bin/python - scraped.txt <<'PYTHON'
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(open(sys.argv[1]).read().rstrip("\n") + "\n"))
assert len(families) >= 19, len(families)
assert all(family.documentation for family in families)
print(f"OpenMetrics: {len(families)} families parsed")
PYTHON
else
    skip see-openmetrics-parser "prometheus_client cannot be installed"
fi
if need_apt man man-db; then
    fastpath man >fastpath.1
    warnings=$(man --warnings -l fastpath.1 2>&1 >/dev/null || true)
    [ -z "$warnings" ] || { echo "$warnings" >&2; exit 1; }
fi
fastpath completions bash | bash -n
