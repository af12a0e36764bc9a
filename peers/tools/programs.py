# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Real programs of Debian on preloaded allocators: CPU time, wall time and peak resident memory. Their output must be the
system allocator's."""
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import candidates
from tables import family, table

PYTHON = "d={}\nfor i in range(300000):\n d[str(i)]=[i]*(i%9)\nprint(sum(map(len,d.values())))"
SQL = ("create table t(a integer primary key, b text);"
       "with recursive n(i) as (select 1 union all select i+1 from n where i<300000) insert into t select i, hex(i*7919) from n;"
       "create index x on t(b); select count(*), max(b) from t where b like '%7%';")
CPP = ("#include <map>\n#include <functional>\n#include <string>\n#include <iostream>\nint main(){std::map<std::string,int> m; std::function<int(int)> f=[](int i){return i*i;};"
       "for(int i=0;i<9;i++) m[std::to_string(i)]=f(i); std::cout<<m.size();}")
RUST = "".join(f"pub fn f{i}(v: &[u64]) -> Vec<String> {{ v.iter().map(|n| format!(\"{i}-{{n}}\")).collect() }}\n" for i in range(150))
# Ten pigeons in nine holes.
SMT = ("".join(f"(declare-const p{i}_{j} Bool)" for i in range(10) for j in range(9))
       + "".join("(assert (or " + " ".join(f"p{i}_{j}" for j in range(9)) + "))" for i in range(10))
       + "".join(f"(assert (not (and p{i}_{j} p{k}_{j})))" for j in range(9) for i in range(10) for k in range(i))
       + "(check-sat)")
RUBY = "h=Hash.new; 300000.times{|i| h[\"k#{i}\"]=[i,i.to_s]}; puts h.values.sum{|a| a[1].size}"
NODE = "const m=new Map();for(let i=0;i<400000;i++)m.set('k'+i,{i,b:Buffer.alloc(i%64)});console.log(m.size)"
PERL = "my %h; $h{\"k$_\"}=[1..($_%9)] for 1..200000; my $n=0; $n+=@$_ for values %h; print \"$n\\n\";"
POSTSCRIPT = "/n 0 def 0 1 60000 { /i exch def /n n i 16 string cvs length add def i 100 array pop pop } for n ="
# A server: what loads it, and ends it, is neither preloaded nor counted.
LOADS = {"redis-server": """until redis-cli -s s ping >/dev/null 2>&1; do sleep 0.02; done
redis-benchmark -s s -n 200000 -P 16 -r 100000 -t set,lpush,sadd -q >/dev/null 2>&1
redis-cli -s s shutdown nosave >/dev/null 2>&1"""}

PROGRAMS = {  # name: (Debian package, command, files to write beside it, input)
    "python3": ("python3", ["python3", "-c", PYTHON], {}, ""),
    "sqlite3": ("sqlite3", ["sqlite3", ":memory:"], {}, SQL),
    "g++": ("g++", ["g++", "-O1", "-S", "-o", "/dev/null", "a.cc"], {"a.cc": CPP}, ""),
    # Debian's: a rustc from elsewhere may have an allocator of its own, which cannot be replaced.
    "rustc": ("rustc-web", ["/usr/bin/rustc", "--crate-type", "rlib", "--emit=metadata,obj", "-o", "out", "a.rs"], {"a.rs": RUST}, ""),
    "z3": ("z3", ["z3", "-in"], {}, SMT),
    "ruby": ("ruby", ["ruby", "-e", RUBY], {}, ""),
    "node": ("nodejs", ["node", "-e", NODE], {}, ""),
    "gs": ("ghostscript", ["gs", "-q", "-dNODISPLAY", "-dBATCH", "-c", POSTSCRIPT, "quit"], {}, ""),
    "perl": ("perl", ["perl", "-e", PERL], {}, ""),
    "redis-server": ("redis-server", ["redis-server", "--port", "0", "--unixsocket", "s", "--save", "", "--logfile", "/dev/null"], {}, ""),
}


def here(name):
    return shutil.which(PROGRAMS[name][1][0] if name == "rustc" else name)


def once(name, library):
    """CPU seconds, wall seconds, peak KiB, and status with a digest of the output."""
    _, command, files, text = PROGRAMS[name]
    environment = dict(os.environ, PYTHONMALLOC="malloc", PYTHONHASHSEED="0", LC_ALL="C")
    environment.pop("LD_PRELOAD", None)
    if library:
        environment["LD_PRELOAD"] = str(library)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        for file, content in files.items():
            (folder / file).write_text(content)
        (folder / "input").write_text(text)
        with open(folder / "input") as source, open(folder / "output", "wb") as target:
            start = time.monotonic()
            process = subprocess.Popen(command, cwd=folder, env=environment, stdin=source, stdout=target, stderr=subprocess.DEVNULL)
            if name in LOADS:
                plain = {key: value for key, value in environment.items() if key != "LD_PRELOAD"}
                subprocess.run(["sh", "-c", LOADS[name]], cwd=folder, env=plain, timeout=60, check=False)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.monotonic() - start
        digest = hashlib.sha256((folder / "output").read_bytes()).hexdigest()
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss, (process.returncode, digest)


def measure(libraries, rounds, only, may_install):
    begun, notes = time.time(), []
    names = [name for name in PROGRAMS if not only or name in only]
    if may_install:
        candidates.install([PROGRAMS[name][0] for name in names if not here(name)])
    for name in [name for name in names if not here(name)]:
        candidates.lacks(f"{name} is not here (package {PROGRAMS[name][0]})")
        names.remove(name)
    cpu, wall, peak, expected, wrong = {}, {}, {}, {}, set()
    order = random.Random(7)
    for turn in range(rounds):
        for name in names:
            if name not in expected:
                expected[name] = once(name, None)[3]
            shuffled = list(libraries)
            order.shuffle(shuffled)
            for allocator in shuffled:
                result = once(name, libraries[allocator])
                if result[3] != expected[name]:
                    wrong.add(f"{name} on {allocator}: status or output differs from the system allocator's")
                    continue
                for values, value in zip((cpu, wall, peak), result):
                    values.setdefault((name, allocator), []).append(value)
        candidates.say(f"programs: round {turn + 1} of {rounds}, {time.time() - begun:.0f} s")
    for text in sorted(wrong):
        candidates.say(text)

    def sort(values):
        return dict(sorted(values.items(), key=lambda item: (names.index(item[0][0]), list(libraries).index(item[0][1]))))

    versions = []
    for name in names:
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}", PROGRAMS[name][0]], text=True, capture_output=True)
        versions.append(done.stdout if done.returncode == 0 else name)
    notes = [f"{rounds} rounds, order drawn anew for every program and round", "versions: " + ", ".join(versions), *sorted(wrong)]
    return [family("peers-programs", "Real programs, allocators preloaded", time.time() - begun, [
        table("cpu", "CPU time", "seconds", "program", sort(cpu)),
        table("wall", "Wall time", "seconds", "program", sort(wall)),
        table("peak", "Peak resident memory", "kibibytes", "program", sort(peak)),
    ], notes)]
