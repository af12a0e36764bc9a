#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Unmodified programs on libfastpath.so: their output must equal the system allocator's.

Each program runs once on the system's allocator and once per variant (front sheaf, front tid, and for some both without rseq). A run counts only if it proves that it was served: the statistics of `fastpath run --stats-json` must show at
least the stated number of allocations that passed a slow path, over the process tree. A program that cannot be installed, or that brings its
own allocator, is a SKIP by name.
Usage: ci/programs.py FASTPATH-COMMAND [NAME...]
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

FASTPATH = os.path.abspath(sys.argv[1])
ONLY = sys.argv[2:]
ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = pathlib.Path(tempfile.mkdtemp(prefix="fastpath-programs-"))
SHEAF = {"FASTPATH_FRONT": "sheaf"}
TID = {"FASTPATH_FRONT": "tid"}
NO_RSEQ = {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
FRONTS = [("sheaf", SHEAF), ("tid", TID)]
ALL = [*FRONTS, ("sheaf, rseq off", {**SHEAF, **NO_RSEQ}), ("tid, rseq off", {**TID, **NO_RSEQ})]
failures, skips, served_runs = [], 0, 0


def skip(name, reason):
    global skips
    skips += 1
    print(f"SKIP programs-{name}: {reason}", flush=True)
    if log := os.environ.get("FASTPATH_SKIP_LOG"):
        with open(log, "a") as file:
            file.write(f"programs-{name}: {reason}\n")


def apt(*packages):
    stamp = pathlib.Path(os.environ.get("FASTPATH_RECORDS", WORK)) / "apt-updated"
    if not stamp.exists():
        subprocess.run(["apt-get", "-qq", "update"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stamp.touch()
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", *packages],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def have(program, *packages):
    """Makes sure that a program exists, installing Debian packages if needed."""
    if not shutil.which(program) and packages:
        apt(*packages)
    return shutil.which(program) is not None


def allocations(path):
    """Sum over all processes of the allocations that the statistics are sure of: what came out of whole sheaves. What is
    freed and allocated again within a sheaf is not counted anywhere, so this is a small part of all."""
    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "allocations_at_least" and isinstance(inner, (int, float)):
                    yield inner
                else:
                    yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)
    data = json.loads(pathlib.Path(path).read_text())
    processes = data.get("processes")
    return sum(walk(processes if processes is not None else data))


def normal(text):
    return text


class Result:
    def __init__(self, status, output):
        self.status, self.output = status, output

    def __eq__(self, other):
        return (self.status, self.output) == (other.status, other.output)


def execute(command, variant, cwd, normalise, timeout, stdin=None, shell_after=None):
    """Runs a command on the system's allocator (variant None) or on ours; returns the result and the allocations."""
    env = dict(os.environ)
    env.pop("LD_PRELOAD", None)
    full, stats = list(command), None
    if variant is not None:
        env.update(variant)
        stats = cwd / "stats.json"
        stats.unlink(missing_ok=True)
        full = [FASTPATH, "run", "--stats-json", str(stats), "--", *command]
    process = subprocess.run(full, cwd=cwd, env=env, input=stdin, timeout=timeout,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = process.stdout.decode(errors="replace")
    if shell_after:
        text += shell_after(cwd)
    return Result(process.returncode, normalise(text)), allocations(stats) if stats and stats.exists() else 0


def program(name, command, minimum, variants=FRONTS, normalise=normal, prepare=None, timeout=300, stdin=None, after=None):
    """One program: the same command on the system's allocator and on each variant."""
    global served_runs
    if ONLY and name not in ONLY:
        return
    start = time.time()
    try:
        folder = WORK / name / "system"
        folder.mkdir(parents=True)
        if prepare:
            prepare(folder)
        reference, _ = execute(command, None, folder, normalise, timeout, stdin, after)
        notes = []
        for label, variant in variants:
            folder = WORK / name / label.replace(", ", "-").replace(" ", "-")
            folder.mkdir(parents=True)
            if prepare:
                prepare(folder)
            result, count = execute(command, variant, folder, normalise, timeout, stdin, after)
            if result != reference:
                failures.append(f"{name} ({label})")
                notes.append(f"{label}: DIFFERS (status {result.status}, expected {reference.status})")
                print(f"--- expected\n{reference.output[-1500:]}\n--- got\n{result.output[-1500:]}\n---")
            elif count < minimum:
                failures.append(f"{name} ({label})")
                notes.append(f"{label}: NOT SERVED ({count} allocations, expected {minimum})")
            else:
                served_runs += 1
                notes.append(f"{label}: same output, {count} allocations")
        print(f"{name:12} {'; '.join(notes)} ({time.time() - start:.0f} s)", flush=True)
    except subprocess.TimeoutExpired as error:
        failures.append(name)
        print(f"{name:12} HUNG: {error}", flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_port(port, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False


def server(name, make_command, talk, minimum, variants=FRONTS):
    """One server: started, asked by `talk(port, folder)`, ended by SIGTERM; the answers are compared."""
    global served_runs
    if ONLY and name not in ONLY:
        return
    start, reference, notes = time.time(), None, []
    for label, variant in [("system", None), *variants]:
        folder = WORK / name / label.replace(", ", "-").replace(" ", "-")
        folder.mkdir(parents=True)
        port = free_port()
        command, env, stats = make_command(port, folder), dict(os.environ), folder / "stats.json"
        if variant is not None:
            env.update(variant)
            command = [FASTPATH, "run", "--stats-json", str(stats), "--", *command]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            answer = talk(port, folder) if wait_port(port) else "did not start: " + (folder / "log").read_text()[-800:]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                answer += "\nhad to be killed"
        if variant is None:
            reference = answer
            continue
        count = allocations(stats) if stats.exists() else 0
        if answer != reference:
            failures.append(f"{name} ({label})")
            notes.append(f"{label}: DIFFERS")
            print(f"--- expected\n{reference[-1500:]}\n--- got\n{answer[-1500:]}\n---")
        elif count < minimum:
            failures.append(f"{name} ({label})")
            notes.append(f"{label}: NOT SERVED ({count} allocations, expected {minimum})")
        else:
            served_runs += 1
            notes.append(f"{label}: same answers, {count} allocations")
    print(f"{name:12} {'; '.join(notes)} ({time.time() - start:.0f} s)", flush=True)


def digest(*patterns):
    """For `after`: a line per produced file with its content's hash."""
    def inner(folder):
        lines = []
        for pattern in patterns:
            for path in sorted(folder.glob(pattern)):
                lines.append(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}")
        return "\n".join(lines)
    return inner


def write(name, text):
    def inner(folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return inner


def times_out(text):
    return re.sub(r"\b\d+(\.\d+)?\s?(ms|s|sec|seconds)\b", "<time>", text)


# python: without its own small-object allocator, so that every object comes from ours.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
STDLIB = subprocess.run([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
                        text=True, stdout=subprocess.PIPE).stdout.strip()
os.environ["PYTHONHASHSEED"] = "0"
os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
program("python-compile", ["env", "PYTHONMALLOC=malloc", PYTHON, "-c",
        "import compileall,hashlib,pathlib,marshal\n"
        f"s=pathlib.Path({STDLIB!r}); h=hashlib.sha256(); n=0\n"
        "for p in sorted(s.glob('*.py'))+sorted(s.glob('email/*.py'))+sorted(s.glob('asyncio/*.py')):\n"
        "    c=compile(p.read_bytes(),str(p),'exec'); n+=1; h.update(c.co_code)\n"
        "print(n,h.hexdigest())"], 2_000, ALL)
has_tests = subprocess.run([PYTHON, "-c", "import test.test_json, test.test_dict"], capture_output=True).returncode == 0
if not has_tests:
    apt("libpython3-testsuite")
    has_tests = subprocess.run([PYTHON, "-c", "import test.test_json, test.test_dict"], capture_output=True).returncode == 0
python_tests, suite = PYTHON, has_tests
if not suite:
    python_tests = sys.executable
    suite = subprocess.run([python_tests, "-c", "import test.test_json, test.test_dict"], capture_output=True).returncode == 0
if suite:
    program("python-tests", ["env", "PYTHONMALLOC=malloc", python_tests, "-m", "unittest", "-q", "test.test_json",
            "test.test_dict", "test.test_list", "test.test_set", "test.test_threading_local", "test.test_zlib",
            "test.test_heapq", "test.test_unicode"], 2_000, FRONTS,
            lambda text: re.sub(r"Ran (\d+) tests in .*", r"Ran \1 tests", text))
else:
    skip("python-tests", "python's own test suite is not installable")

if have("sqlite3", "sqlite3"):
    program("sqlite3", ["sqlite3", ":memory:"], 300, ALL, stdin=b"""
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<60000)
insert into t select i, hex(i*7919) || printf('%08d', i), i*1.5 from n;
create index tb on t(b);
select count(*), sum(length(b)), round(avg(c),2) from t;
select b, count(*) from t where b like '%00%' group by substr(b,1,2) order by b limit 20;
update t set b = b || 'x' where a % 3 = 0; delete from t where a % 7 = 0;
select count(*), max(b) from t; pragma integrity_check;
select group_concat(a) from (select a from t order by b desc limit 500);
""")
else:
    skip("sqlite3", "not installable")

if have("git", "git"):
    def repository(folder):
        source = folder / "repo"
        source.mkdir()
        for number in range(120):
            (source / f"file{number}.txt").write_text("\n".join(f"line {number * i % 97}" for i in range(200)))
    program("git", ["sh", "-c", "cd repo && export GIT_AUTHOR_DATE=@1700000000 GIT_COMMITTER_DATE=@1700000000 "
            "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b && git init -q -b main . && git add . && "
            "git commit -q -m one && sed -i s/line/row/ file1*.txt && git commit -q -a -m two && git gc -q && git log --stat --format=%H && "
            "git diff HEAD~1 --stat && git fsck"], 200, FRONTS, prepare=repository)
else:
    skip("git", "not installable")

C_SOURCE = "\n".join(f"int f{i}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i * {i} ^ x; return s; }}" for i in range(800))
if have("gcc", "gcc"):
    program("gcc", ["gcc", "-O2", "-c", "a.c", "-o", "a.o"], 500, ALL, prepare=write("a.c", C_SOURCE + "\n"), after=digest("a.o"))
else:
    skip("gcc", "not installable")
if have("g++", "g++"):
    program("g++", ["sh", "-c", "g++ -O1 -std=c++17 a.cc -o a && ./a"], 1_000, FRONTS, prepare=write("a.cc", """
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
int main() {
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 50000; i++) m[std::to_string(i % 977)].push_back(i);
    std::regex r("([0-9])([0-9]+)");
    std::ostringstream o;
    for (auto &[k, v] : m) o << std::regex_replace(k, r, "$2$1") << v.size();
    std::unordered_map<std::string, int> u;
    for (int i = 0; i < 50000; i++) u[o.str().substr(i % 1000, 9)]++;
    std::cout << std::hash<std::string>{}(o.str()) << ' ' << u.size() << '\\n';
}
"""))
else:
    skip("g++", "not installable")

if have("perl", "perl"):
    program("perl", ["perl", "-e", "my %h; for my $i (1..200000) { $h{$i % 5003} .= chr(65 + $i % 26); } my @s = sort { length $h{$a} <=> length $h{$b} or $a <=> $b } keys %h;"
            " my $t = join ',', map { substr $h{$_}, 0, 5 } @s; $t =~ s/([A-M])+/<$1>/g; print length $t, ' ', substr($t, 0, 200), qq{\\n};"], 500, ALL)
else:
    skip("perl", "not installable")

if have("node", "nodejs"):
    program("node", ["node", "-e", "const m=new Map();for(let i=0;i<2e5;i++){m.set('k'+i%5003,(m.get('k'+i%5003)||'')+i)};"
            "const z=require('zlib');const b=Buffer.from(JSON.stringify([...m]));const c=z.deflateSync(b);"
            "console.log(b.length,c.length,require('crypto').createHash('sha256').update(z.inflateSync(c)).digest('hex'));"
            "const{Worker}=require('worker_threads');let n=0;for(let i=0;i<4;i++)new Worker('let s=0;for(let i=0;i<1e6;i++)s+=i;require(\"worker_threads\").parentPort.postMessage(s)',{eval:true}).on('message',v=>{n+=v}).on('exit',()=>{if(++globalThis.e===4)console.log(n)});globalThis.e=0"],
            200, FRONTS)
else:
    skip("node", "not installable")

if os.path.exists("/usr/bin/rustc") or have("/usr/bin/rustc", "rustc-web"):
    program("rustc-web", ["/usr/bin/rustc", "--edition", "2021", "-O", "--crate-type", "lib", "--crate-name", "a", "--emit", "metadata,obj", "-C", "codegen-units=1", "a.rs"], 1_000, FRONTS,
            prepare=write("a.rs", "#![no_std]\n" + "\n".join(
                f"pub fn f{i}(v: &mut [u32]) -> u32 {{ v.sort_unstable_by_key(|x| x.wrapping_mul({i})); v.iter().fold({i}, |a, b| a ^ b) }}" for i in range(60))),
            after=digest("a.o"))
else:
    skip("rustc-web", "not installable")

if have("redis-server", "redis-server", "redis-tools"):
    def redis(port, folder):
        def cli(*arguments):
            return subprocess.run(["redis-cli", "-p", str(port), *arguments], text=True, stdout=subprocess.PIPE, timeout=60).stdout
        bench = subprocess.run(["redis-benchmark", "-p", str(port), "-n", "20000", "-r", "5000", "-q", "-t", "set,get,lpush,hset,zadd"],
                               text=True, stdout=subprocess.PIPE, timeout=240)
        script = "for i=1,20000 do redis.call('set','x'..i,string.rep('v',i%200)) end local s=0 for i=1,20000 do s=s+#redis.call('get','x'..i) end return s"
        return f"{bench.returncode} {cli('eval', script, '0')} {cli('dbsize') != ''} {cli('config', 'get', 'maxmemory-policy')} {cli('del', 'x1', 'x2', 'x99999')}"
    server("redis", lambda port, folder: ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--daemonize", "no", "--io-threads", "2"], redis, 300)
else:
    skip("redis", "not installable")

if have("nginx", "nginx-light") or os.path.exists("/usr/sbin/nginx"):
    def nginx(port, folder):
        (folder / "ngx").mkdir()
        (folder / "ngx/page.html").write_text("<p>" + "x" * 30_000)
        (folder / "nginx.conf").write_text(f"""
daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/err; user root;
events {{ worker_connections 256; }}
http {{ access_log off; gzip on; gzip_min_length 100; server {{ listen 127.0.0.1:{port}; root {folder}/ngx; autoindex on; }} }}
""")
        return ["/usr/sbin/nginx", "-c", f"{folder}/nginx.conf", "-p", str(folder)]

    def fetch(port, folder):
        import http.client
        lines = []
        for number in range(300):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", ["/page.html", "/nothing", "/"][number % 3], headers={"Accept-Encoding": "gzip"} if number % 2 else {})
            response = connection.getresponse()
            body = response.read()
            lines.append(f"{response.status} {len(body) if number % 3 == 0 else ''}")
            connection.close()
        return "\n".join(lines)
    server("nginx", nginx, fetch, 20)
else:
    skip("nginx", "not installable")

if have("chromium", "chromium"):
    program("chromium", ["sh", "-c", "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
            "--disable-component-update --disable-sync --user-data-dir=\"$PWD/data\" --window-size=800,600 --screenshot=\"$PWD/shot.png\" \"file://$PWD/page.html\" >log 2>&1; echo status $?"],
            100, [("sheaf", SHEAF)], prepare=write("page.html", "<body style='background:#246;color:#fff'><h1>fastpath</h1><canvas id=c width=300 height=200></canvas>"
            "<script>const x=c.getContext('2d');for(let i=0;i<300;i++){x.fillStyle=`hsl(${i},80%,50%)`;x.fillRect(i,0,1,200)}</script>"), after=digest("shot.png"), timeout=120)
else:
    skip("chromium", "not installable")

shutil.rmtree(WORK, ignore_errors=True)
print(f"programs: {served_runs} runs served with the same output, {len(failures)} failures, {skips} skips")
if failures:
    print("FAILED: " + ", ".join(failures))
sys.exit(1 if failures or (served_runs == 0) else 0)
