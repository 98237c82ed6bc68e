# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Paths of the build, waiting for a condition, commands, and the entries of a map."""
import json
import os
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("SMC_BUILD", os.path.join(ROOT, "build"))
AGENT = os.path.join(BUILD, "smc-agent")
CTL = os.path.join(BUILD, "smcctl")


def test_program(name):
    return os.path.join(BUILD, "tests", name)


def is_sanitized():
    """Whether the programs were built with a sanitizer, which takes memory and descriptors of its own."""
    with open(AGENT, "rb") as file:
        program = file.read()
    return b"__asan_init" in program or b"__tsan_init" in program


class Timeout(Exception):
    """A condition did not come true in time; the text names it."""


def wait_for(what, condition, timeout=60.0):
    """Polls until condition() is true, and returns its value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise Timeout(f"waited {timeout} s for {what}")
        time.sleep(0.02)
    return value


def sh(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def map_entries(path):
    """The entries of a pinned map, key and value by name. An entry that is deleted while bpftool walks through the map
    has an error in place of its value, and is left out; the walk then begins again, so other entries come twice."""
    dumped = json.loads(sh("bpftool", "-j", "map", "dump", "pinned", path))
    entries = [entry["formatted"] for entry in dumped if "formatted" in entry]
    return list({json.dumps(entry["key"]): entry for entry in entries}.values())
