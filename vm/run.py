#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots a Debian kernel in QEMU (no KVM needed) with our test programs in its initramfs, and judges what they print.

Usage: vm/run.py MACHINE          one of the machines of vm/machines.toml
       vm/run.py --list

The kernel comes from Debian's package (downloaded with apt, unpacked with dpkg-deb, never installed). The initramfs
holds busybox, the shared libraries the programs name, and the programs. Each line the guest prints as `VM-OK name`
or `VM-FAIL name` is one verdict; `VM-END` must come last. The guest must report the kernel release, the CPU count,
and, where the machine file asks for it, the CPUs that really went offline.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

root = pathlib.Path(__file__).resolve().parent.parent
cache = root / "target" / "vm"
machines = tomllib.loads((root / "vm/machines.toml").read_text())


def run(*command, **kw):
    return subprocess.run(command, check=True, text=True, **kw)


def apt_options(architecture):
    """Options that give apt a private view of another architecture, so that the system's own stays as it is."""
    state = cache / f"apt-{architecture}"
    for folder in ["lists/partial", "cache/archives/partial"]:
        (state / folder).mkdir(parents=True, exist_ok=True)
    options = ["-o", f"APT::Architecture={architecture}", "-o", f"APT::Architectures::={architecture}", "-o", f"Dir::State::lists={state}/lists",
               "-o", f"Dir::Cache={state}/cache", "-o", "Dir::State::status=/dev/null"]
    if not (state / "updated").exists():
        run("apt-get", *options, "-qq", "update", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (state / "updated").touch()
    return options


def unpacked(package, architecture, wanted):
    """Downloads a Debian package (never installs it) and returns the files in it that match."""
    folder = cache / "packages" / f"{package}-{architecture}"
    found = sorted(folder.glob(wanted))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        run("apt-get", *apt_options(architecture), "-qq", "download", package, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        archive = next(folder.glob("*.deb"))
        run("dpkg-deb", "-x", str(archive), str(folder))
        archive.unlink()
        found = sorted(folder.glob(wanted))
    return found


def kernel(machine):
    """The kernel image of the machine's package, and its release."""
    options = apt_options(machine["architecture"])
    depends = subprocess.run(["apt-cache", *options, "depends", machine["package"]], text=True, stdout=subprocess.PIPE).stdout
    name = next(name for name in re.findall(r"Depends: (\S+)", depends) if re.match(r"linux-image-\d", name))
    image = unpacked(name, machine["architecture"], "boot/vmlinuz-*")[0]
    shutil.rmtree(image.parent.parent / "lib", ignore_errors=True)
    return image, image.name.removeprefix("vmlinuz-")


def test_binaries(crate, targets, target=None):
    """Builds test programs of a crate and returns {name: path}; for another target with Debian's compiler and its own
    build of the standard library, linked statically."""
    command, env = ["cargo", "test", "--no-run", "--message-format=json", "--quiet", "--release", "-p", crate], dict(os.environ)
    if target:
        command += ["-Zbuild-std", "--target", target, "--target-dir", str(cache / "build")]
        env.update(RUSTC_BOOTSTRAP="1", RUSTC="/usr/bin/rustc", RUSTFLAGS="-Ctarget-feature=+crt-static")
        env[f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER"] = target.replace("-unknown", "") + "-gcc"
    for target in targets:
        command += ["--lib"] if target == "lib" else ["--test", target]
    output = subprocess.run(command, cwd=root, env=env, text=True, stdout=subprocess.PIPE, check=True).stdout
    found = {}
    for line in output.splitlines():
        if line.startswith("{"):
            message = json.loads(line)
            if message.get("executable") and message.get("profile", {}).get("test"):
                found[f"{crate}-{message['target']['name']}"] = message["executable"]
    return found


def c_programs(programs, target):
    """Builds programs of libfastpath's tests for another target, linked statically with libfastpath.a: {name: path}."""
    prefix = target.replace("-unknown", "")
    env = dict(os.environ, RUSTC_BOOTSTRAP="1", RUSTC="/usr/bin/rustc")
    subprocess.run(["cargo", "build", "--quiet", "--release", "-Zbuild-std=core,compiler_builtins", "--target", target, "--target-dir", str(cache / "build-malloc"),
                    "--lib", "--config", f"target.{target}.linker='{prefix}-gcc'"], cwd=root / "crates/malloc", env=env, check=True)
    library = cache / "build-malloc" / target / "release/libfastpath.a"
    found = {}
    for name in programs:
        found[f"libfastpath-{name}"] = str(cache / f"{name}-{target}")
        source = next((root / "crates/malloc/tests/programs").glob(f"{name}.c*"))
        compiler = prefix + ("-g++" if source.suffix == ".cpp" else "-gcc")
        # malloc_info writes through fputs, which a static program holds only if something asks for it.
        run(compiler, "-O1", "-w", "-fno-builtin", "-DSTATIC", "-static", "-Wl,-u,fputs", "-pthread", "-o", found[f"libfastpath-{name}"], str(source), str(library),
            stderr=subprocess.DEVNULL)
    return found


def libraries(binary):
    text = subprocess.run(["ldd", binary], text=True, stdout=subprocess.PIPE).stdout
    return re.findall(r"(/\S+\.so\S*)", text)


def initramfs(machine, name, release):
    tree = cache / f"tree-{name}"
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ["bin", "proc", "sys", "dev", "tmp", "tests", "lib64", "etc"]:
        (tree / folder).mkdir(parents=True)
    shutil.copy(unpacked("busybox-static", machine["architecture"], "bin/busybox")[0], tree / "bin/busybox")
    steps, needed = [], set()
    for test in machine["tests"]:
        if "crate" in test:
            for label, path in test_binaries(test["crate"], test["targets"], machine.get("target")).items():
                shutil.copy(path, tree / "tests" / label)
                if not machine.get("target"):
                    run("strip", "-g", str(tree / "tests" / label))
                    needed.update(libraries(path))
                arguments = test.get("arguments", "")
                steps.append((label, f"{test.get('environment', '')} /tests/{label} {arguments}".strip()))
        elif "c" in test:
            for label, path in c_programs(test["c"], machine["target"]).items():
                shutil.copy(path, tree / "tests" / label)
                steps.append((label, f"/tests/{label} {test['c'][label.removeprefix('libfastpath-')]}".strip()))
        else:
            for file in test.get("files", []):
                source = root / file
                shutil.copy(source, tree / "tests" / source.name)
                needed.update(libraries(str(source)))
            for program in test.get("programs", []):
                source = shutil.which(program)
                shutil.copy(source, tree / "bin" / program)
                needed.update(libraries(source))
            steps.append((test["name"], test["run"]))
    for library in needed:
        target = tree / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(library), target)
    script = ["#!/bin/busybox sh", "/bin/busybox --install -s /bin", "export PATH=/bin HOME=/tmp RUST_BACKTRACE=1",
              "mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /dev/shm; mount -t tmpfs tmp /tmp; mount -t tmpfs shm /dev/shm",
              "ip link set lo up 2>/dev/null", "echo VM-RELEASE $(uname -r)", "echo VM-CPUS $(nproc)", "cd /tmp"]
    if machine.get("hotplug"):
        script += ["(while :; do for c in " + " ".join(map(str, machine["hotplug"])) + "; do echo 0 >/sys/devices/system/cpu/cpu$c/online; "
                   "grep -q 0 /sys/devices/system/cpu/cpu$c/online && echo $c >>/tmp/offlined; sleep 1; echo 1 >/sys/devices/system/cpu/cpu$c/online; sleep 0.3; done; done) &"]
    for label, command in steps:
        script += [f"echo VM-RUN {label}", f"if {command} >/tmp/out 2>&1; then echo VM-OK {label}; else echo VM-FAIL {label}; tail -n 60 /tmp/out; fi", "grep -E '^(SKIP|test result)' /tmp/out"]
    if machine.get("hotplug"):
        # Short programs may end before the loop came round once.
        script += ["for wait in $(seq 60); do [ $(sort -u /tmp/offlined | wc -l) = " + str(len(machine["hotplug"])) + " ] && break; sleep 1; done"]
        script += ["echo VM-OFFLINED $(sort -u /tmp/offlined | wc -l)"]
    script += ["echo VM-END", "poweroff -f"]
    (tree / "init").write_text("\n".join(script) + "\n")
    (tree / "init").chmod(0o755)
    image = cache / f"{name}.cpio"
    listing = subprocess.run(["find", ".", "-print0"], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
    with open(image, "wb") as out:
        subprocess.run([str(unpacked("busybox-static", "amd64", "bin/busybox")[0]), "cpio", "-0", "-o", "-H", "newc"], cwd=tree, input=listing, stderr=subprocess.DEVNULL, stdout=out, check=True)
    return image, [label for label, _ in steps]


def boot(name):
    machine = machines[name]
    cache.mkdir(parents=True, exist_ok=True)
    image, release = kernel(machine)
    disk, labels = initramfs(machine, name, release)
    command = [machine["qemu"], *machine["options"], "-accel", "tcg,thread=multi", "-smp", str(machine["cpus"]), "-m", str(machine.get("memory", 2048)), "-nographic", "-no-reboot",
               "-kernel", str(image), "-initrd", str(disk), "-append", machine["console"] + " panic=-1 quiet " + machine.get("append", "")]
    log, start = cache / f"{name}.log", time.time()
    with open(log, "wb") as out:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=machine.get("seconds", 280))
        except subprocess.TimeoutExpired:
            pass
    text = log.read_text(errors="replace").replace("\r", "")
    problems = []
    got = re.search(r"VM-RELEASE (\S+)", text)
    if not got or got[1] != release:
        problems.append(f"kernel {got and got[1]}, expected {release}")
    cpus = re.search(r"VM-CPUS (\d+)", text)
    if not cpus or int(cpus[1]) != machine["cpus"]:
        problems.append(f"{cpus and cpus[1]} CPUs, expected {machine['cpus']}")
    if machine.get("hotplug"):
        offlined = re.search(r"VM-OFFLINED (\d+)", text)
        if not offlined or int(offlined[1]) != len(machine["hotplug"]):
            problems.append(f"{offlined and offlined[1]} CPUs went offline, expected {len(machine['hotplug'])}")
    passed = re.findall(r"VM-OK (\S+)", text)
    problems += [f"{label}: no verdict or failed" for label in labels if label not in passed]
    if "VM-END" not in text:
        problems.append("did not reach its end")
    for line in re.findall(r"^SKIP .*", text, re.M):
        print(f"  {line}")
    print(f"{name}: Linux {release}, {machine['cpus']} CPUs, {len(passed)} of {len(labels)} programs passed, {time.time() - start:.0f} s")
    if problems:
        print("\n".join("  " + problem for problem in problems))
        print(text[-6000:])
        print(f"the whole log: {log.relative_to(root)}")
    return not problems


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(machines))
    else:
        sys.exit(0 if all([boot(name) for name in sys.argv[1:]]) else 1)
