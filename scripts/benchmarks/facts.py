# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Facts of the machine on which figures were measured; ratios of one machine say little about another one."""
import glob
import os
import platform
import subprocess

from lab.basics import AGENT, sh, test_program

PROGRAM = test_program("smc-bench-machine")


def mitigations():
    """The vulnerabilities of the processor that the kernel mitigates, which makes system calls and switches slower."""
    found = []
    for path in sorted(glob.glob("/sys/devices/system/cpu/vulnerabilities/*")):
        with open(path) as file:
            if file.read().startswith("Mitigation"):
                found.append(os.path.basename(path))
    return found


def steal_seconds():
    """Steal time of all processors together since the start."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def measure():
    """The facts, by name; the values have their units."""
    facts = {"version": sh(AGENT, "--version").split()[1], "kernel": platform.release()}
    facts["processors"] = str(len(os.sched_getaffinity(0)))
    for line in subprocess.run([PROGRAM], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        name, value, unit = line.split("\t")
        facts[name] = f"{value} {unit}"
    facts["mitigations"] = ", ".join(mitigations()) or "none"
    return facts


def print_facts(facts):
    for name, value in facts.items():
        print(f"{name + ':':25} {value}")
