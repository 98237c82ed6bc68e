# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs smcctl decode on captures and messages."""
import json
import subprocess

from lab.basics import CTL


def run(*arguments, data=None):
    return subprocess.run(
        [CTL, "decode", *arguments], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300
    )


def decode(*arguments, data=None, strict=False):
    """The messages, as objects. A capture that is being written may end inside a packet; `strict`: it must not."""
    done = run("--json", *arguments, data=data)
    if strict and done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    return [json.loads(line) for line in done.stdout.splitlines()]


def histories(capture):
    """The histories of connections and link groups."""
    return decode("--summary", capture)


def faults(capture):
    return [m for m in decode(capture) if "fault" in m]
