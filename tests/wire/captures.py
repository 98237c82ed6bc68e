# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What smcctl decode says about a capture."""
import json
import os
import subprocess

BUILD = os.environ["SMC_BUILD"]


def decode(*options):
    done = subprocess.run([os.path.join(BUILD, "smcctl"), "decode", "--json", *options], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def stories(capture):
    return decode("--summary", capture)


def faults(capture):
    return [m for m in decode(capture) if "fault" in m]
