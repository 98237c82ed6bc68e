# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Debian kernels for the virtual machines: the newest package of a series, fetched and unpacked once, kept in build/vm.

    kernel = fetch("6.12")     # .version, .image, .modules (a directory for modprobe -d)
    kernels.py 6.1 7           # as a program: fetches these

"7" is the newest 7.x. Packages come from where this machine's apt has Debian from, with the suites below; its own
sources are not touched: apt runs with a list and a state of its own. What was fetched once is used from then on,
without a network; remove build/vm/kernels for newer ones."""
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from lab.basics import BUILD

CACHE = os.path.join(BUILD, "vm")

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Of Debian's own archive, beside the suite that this machine runs.
MORE_SUITES = ["bookworm", "bookworm-backports", "trixie-backports"]
# Package names of a series: the second pattern since Debian splits modules off.
IMAGES = [r"linux-image-({})(?!\d)[^ ]*-amd64-unsigned", r"linux-binary-unsigned-({})(?!\d)[^ ]*-amd64"]
FLAVOURS = re.compile(r"-(rt|cloud|dbg)-")


@dataclass
class Kernel:
    version: str  # "6.12.117+deb12-amd64"
    image: str
    modules: str  # contains lib/modules/<version>


def _apt(program, *arguments, **kwargs):
    state = os.path.join(CACHE, "apt")
    options = [
        f"Dir::Etc::sourcelist={state}/sources.list",
        "Dir::Etc::sourceparts=-",
        f"Dir::State::lists={state}/lists",
        f"Dir::Cache={state}/cache",
        "Dir::State::status=/dev/null",
        "APT::Architecture=amd64",
        "Acquire::Languages=none",
        "APT::Update::Error-Mode=any",
        "Acquire::Retries=3",
        "Acquire::http::Timeout=20",
        "APT::Sandbox::User=root",
    ]
    command = [program] + [part for option in options for part in ("-o", option)] + list(arguments)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600, **kwargs)
    if done.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _sources():
    """(URI, suite) of Debian's archives as this machine's apt knows them, and of the other suites beside them."""
    shown = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(CODENAME) $(LABEL)",
            "Created-By: Packages",
            "Origin: Debian",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    known = sorted({tuple(line.split()[:3]) for line in shown.stdout.splitlines()})
    found = [(uri, suite) for uri, suite, _ in known]
    archives = sorted({uri for uri, _, label in known if label == "Debian"})
    if not archives:
        raise RuntimeError("this machine's apt knows no archive of Debian to take kernels from (apt-get indextargets)")
    return found + [(archives[0], suite) for suite in MORE_SUITES if (archives[0], suite) not in found]


def _update():
    state = os.path.join(CACHE, "apt")
    for part in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(state, part), exist_ok=True)
    with open(os.path.join(state, "sources.list"), "w") as file:
        for uri, suite in _sources():
            file.write(f"deb [signed-by={KEYRING}] {uri} {suite} main\n")
    _apt("apt-get", "-q", "update")


def _key(text):
    return [int(n) for n in re.findall(r"\d+", text)]


def _newest(series):
    """(package names, version) of the newest kernel of that series."""
    names = _apt("apt-cache", "search", "--names-only", "^linux-(image|binary)-").split("\n")
    names = [line.split(" ")[0] for line in names if line]
    found = []
    for pattern in IMAGES:
        for name in names:
            match = re.fullmatch(pattern.format(re.escape(series)), name)
            if match and not FLAVOURS.search(name):
                version = re.sub(r"^linux-(image|binary-unsigned)-|-unsigned$", "", name)
                found.append((_key(version), name, version))
    if not found:
        raise RuntimeError(f"no kernel {series} among Debian's packages")
    _, name, version = max(found)
    split = [f"linux-modules-{version}", f"linux-base-{version}"] if "binary" in name else []
    return [name] + split, version


def _unpack(package, target):
    reader = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    with reader.stdout:
        subprocess.run(
            [
                "tar",
                "-x",
                "-C",
                target,
                "--exclude=./usr/share",
                "--exclude=*/drivers/gpu",
                "--exclude=*/drivers/media",
                "--exclude=*/sound",
                "--exclude=*/drivers/scsi",
                "--exclude=*/drivers/staging",
                "--exclude=*/drivers/net/wireless",
                "--exclude=*/drivers/iio",
                "--exclude=*/drivers/hwmon",
            ],
            stdin=reader.stdout,
            check=True,
        )
    if reader.wait() != 0:
        raise RuntimeError(f"cannot unpack {package}")


def _kept(series):
    kept = [
        p
        for p in glob.glob(os.path.join(CACHE, "kernels", series + "*"))
        if re.match(re.escape(series) + r"(?!\d)", os.path.basename(p)) and os.path.exists(os.path.join(p, "complete"))
    ]
    return max(kept, key=lambda p: _key(os.path.basename(p)), default=None)


def _install(series):
    _update()
    packages, version = _newest(series)
    path = os.path.join(CACHE, "kernels", version)
    shutil.rmtree(path, ignore_errors=True)
    downloads = os.path.join(path, "download")
    os.makedirs(downloads)
    _apt("apt-get", "-q", "download", *packages, cwd=downloads)
    for package in glob.glob(os.path.join(downloads, "*.deb")):
        _unpack(package, path)
    shutil.rmtree(downloads)
    if not os.path.isdir(os.path.join(path, "lib")):
        os.symlink("usr/lib", os.path.join(path, "lib"))  # newer packages
    subprocess.run(["depmod", "-b", path, version], check=True, stderr=subprocess.DEVNULL)
    open(os.path.join(path, "complete"), "w").close()
    return path


def fetch(series):
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = _kept(series) or _install(series)
    version = os.path.basename(path)
    image = glob.glob(os.path.join(path, "boot", "vmlinuz*")) + glob.glob(
        os.path.join(path, "usr/lib/modules/*/vmlinuz*")
    )
    return Kernel(version, image[0], path)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(wanted, fetch(wanted).version, flush=True)
