# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who is compared: the worker with each global allocator, and the libraries to preload. Builds what is missing."""
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent.parent
root = here.parent
OUT = here / "target" / "so"

# Rust global allocators: the worker's features. The first two are ours.
GLOBAL = ["fastpath", "fastpath-inline", "system", "mimalloc3", "mimalloc2", "snmalloc", "jemalloc", "tcmalloc", "rpmalloc"]
# The libraries of Debian: package, path.
DEBIAN = {
    "debian-mimalloc": ("libmimalloc2.0", "/usr/lib/*/libmimalloc.so.2*"),
    "debian-jemalloc": ("libjemalloc2", "/usr/lib/*/libjemalloc.so.2"),
    "debian-tcmalloc": ("libtcmalloc-minimal4", "/usr/lib/*/libtcmalloc_minimal.so.4*"),
}
# Shared objects from the sources that the crates carry: crate, folder in it, compiler, flags, sources.
MIMALLOC = ["-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-fvisibility=hidden", "-Iinclude", "-Isrc"]
VENDORED = {
    "mimalloc3": ("libmimalloc-sys", "c_src/mimalloc/v3", "cc", MIMALLOC, ["src/static.c"]),
    "mimalloc2": ("libmimalloc-sys", "c_src/mimalloc/v2", "cc", MIMALLOC, ["src/static.c"]),
    "snmalloc": ("snmalloc-sys", "upstream", "c++",
                 ["-std=c++20", "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1", "-DSNMALLOC_STATIC_LIBRARY_PREFIX=", "-mcx16", "-Isrc"],
                 ["src/snmalloc/override/new.cc", "src/snmalloc/override/malloc.cc", "-latomic"]),
    "rpmalloc": ("rpmalloc-sys", "rpmalloc/rpmalloc", "cc", ["-D_GNU_SOURCE", "-DENABLE_OVERRIDE=1", "-DENABLE_PRELOAD=1"],
                 ["rpmalloc.c", "-ldl"]),
}
PRELOAD = ["fastpath", "system", *VENDORED, *DEBIAN]
# What cannot be compared, and why; more is added as builds fail.
missing = ["smalloc is not published as a crate (the crate of that name is another allocator, for one kind of smart contract)"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def lacks(what):
    missing.append(what)
    say("not compared: " + what)


def run(command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def install(packages):
    """Debian packages, if we may install them."""
    if not packages or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    say("installing " + " ".join(packages))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": dict(os.environ, DEBIAN_FRONTEND="noninteractive")}
    command = ["apt-get", "-y", "--no-install-recommends", "install", *packages]
    if subprocess.run(command, **quiet).returncode != 0:
        subprocess.run(["apt-get", "update"], **quiet)
        if subprocess.run(command, **quiet).returncode != 0:
            for package in packages:  # one by one: what is there is there
                subprocess.run([*command[:-len(packages)], package], **quiet)


def worker(name, binary="worker", profile=None):
    """A program of this package with that global allocator, or None with the reason said."""
    profile = profile or ("fat" if name == "fastpath-inline" else "release")
    target = here / "target" / name
    command = ["cargo", "build", "--quiet", "--locked", "--profile", profile, "--manifest-path", str(here / "Cargo.toml"),
               "--target-dir", str(target), "--bin", binary]
    features = ([] if name == "system" else [name]) + (["parser"] if binary != "worker" else [])
    if features:
        command += ["--features", ",".join(features)]
    done = run(command)
    if done.returncode != 0:
        lacks(f"{name} does not build here: " + " | ".join(done.stdout.splitlines()[-4:]))
        return None
    return target / profile / binary


def library():
    """Our library to preload."""
    target = root / "target" / "malloc"
    done = run(["cargo", "build", "--quiet", "--release", "--manifest-path", str(root / "crates/malloc/Cargo.toml"), "--target-dir", str(target)])
    if done.returncode != 0:
        raise SystemExit("libfastpath.so does not build:\n" + done.stdout)
    return target / "release" / "libfastpath.so"


def sources(crate):
    """Where cargo keeps the sources of a crate that this package's lock file names."""
    done = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked", "--all-features", "--manifest-path", str(here / "Cargo.toml")],
                          text=True, capture_output=True)
    for package in json.loads(done.stdout)["packages"] if done.returncode == 0 else []:
        if package["name"] == crate:
            return pathlib.Path(package["manifest_path"]).parent
    return None


def compile_c(name, source, flags):
    OUT.mkdir(parents=True, exist_ok=True)
    target = OUT / name
    if not target.exists() or target.stat().st_mtime < (here / "c" / source).stat().st_mtime:
        done = run(["cc", "-O2", "-fno-builtin", "-w", "-pthread", *flags, "-o", str(target), str(here / "c" / source)])
        if done.returncode != 0:
            raise SystemExit(f"{source}: {done.stdout}")
    return target


def pair_program():
    return compile_c("pair", "pair.c", [])


def empty_library():
    return compile_c("empty.so", "empty.c", ["-shared", "-fPIC"])


def vendored(name):
    """The shared object of a peer from its crate's sources, or None with the reason said."""
    crate, folder, compiler, flags, inputs = VENDORED[name]
    target = OUT / f"{name}.so"
    if target.exists():
        return target
    base = sources(crate)
    if not base or not shutil.which(compiler):
        lacks(f"preloaded {name}: no {'compiler ' + compiler if base else 'sources of ' + crate}")
        return None
    OUT.mkdir(parents=True, exist_ok=True)
    done = run([compiler, "-O3", "-DNDEBUG", "-fPIC", "-shared", "-pthread", "-ftls-model=initial-exec", "-w", *flags,
                *inputs, "-o", str(target)], cwd=base / folder)
    if done.returncode != 0:
        lacks(f"preloaded {name} does not build here: " + " | ".join(done.stdout.splitlines()[:3]))
        return None
    return target


def global_allocators(only):
    """Name to command of the worker."""
    return {name: path for name in GLOBAL if name in only and (path := worker(name))}


def preloads(only, may_install):
    """Name to library (None: nothing preloaded)."""
    wanted = [name for name in PRELOAD if name in only]
    if may_install:
        install([DEBIAN[name][0] for name in wanted if name in DEBIAN and not glob.glob(DEBIAN[name][1])])
    found = {}
    for name in wanted:
        if name == "system":
            found[name] = None
        elif name == "fastpath":
            found[name] = library()
        elif name in VENDORED:
            if path := vendored(name):
                found[name] = path
        elif paths := sorted(glob.glob(DEBIAN[name][1])):
            found[name] = pathlib.Path(paths[0]).resolve()
        else:
            lacks(f"{name}: no {DEBIAN[name][1]} (package {DEBIAN[name][0]})")
    return found


def commit():
    """The commit of this tree, if it is a checkout."""
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"], text=True, capture_output=True)
    return done.stdout.strip() if done.returncode == 0 else None


def versions():
    """What was compared, in one line."""
    names = {"mimalloc", "libmimalloc-sys", "snmalloc-rs", "tikv-jemallocator", "tcmalloc-better", "rpmalloc", "rpmalloc-sys"}
    lock = (here / "Cargo.lock").read_text().split("[[package]]")
    parts = []
    for block in lock:
        fields = dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line)
        if fields.get("name", "").strip('"') in names:
            parts.append(f"{fields['name']} {fields['version']}".replace('"', ""))
    for package, _ in DEBIAN.values():
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}", package], text=True, capture_output=True)
        if done.returncode == 0:
            parts.append("Debian's " + done.stdout)
    parts.append("glibc " + os.confstr("CS_GNU_LIBC_VERSION").split()[-1])
    return ", ".join(parts)
