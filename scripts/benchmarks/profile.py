# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Profiles a case: how long each BPF program ran, and which system calls the agents made, for each round
trip, MB or connection. The case runs once, and more slowly than when it is measured."""
import json
import re
import signal
import subprocess

from lab.basics import sh, wait_for
from lab.nodes import Lab

from .cases import OURS

STATS = "/proc/sys/kernel/bpf_stats_enabled"


def programs():
    """For each BPF program: how often it ran, and for how many nanoseconds."""
    found = {}
    for one in json.loads(sh("bpftool", "-j", "prog", "show")):
        runs, spent = found.get(one.get("name", "?"), (0, 0))
        found[one.get("name", "?")] = (runs + one.get("run_cnt", 0), spent + one.get("run_time_ns", 0))
    return found


class Strace:
    """Counts the system calls of a process and its threads."""

    def __init__(self, pid, path):
        self.path = path
        self.process = subprocess.Popen(["strace", "-cf", "-o", path, "-p", str(pid)], stderr=subprocess.PIPE)
        wait_for("strace", lambda: b"attached" in self.process.stderr.readline())

    def end(self):
        """Stops counting and returns the counts; the traced program continues."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(10)
        self.process.stderr.close()
        with open(self.path) as file:
            rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+ )?\s*(\w+)$", file.read(), re.M)
        return {name: int(count) for count, name in rows if name != "total"}


def print_counts(title, counts, much):
    print(f"  {title}")
    for name, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        if count / much >= 0.01:
            print(f"    {name:24}{count / much:>10.2f}")


def profile_case(scene, case, cores, options):
    agents = [agent for agent, _ in scene.agents]
    before = programs()
    counters = [Strace(agent.pid, f"{scene.client.lab.run}/strace{i}") for i, agent in enumerate(agents)]
    try:
        value, _ = scene.once(OURS, case, cores, options.seconds)
    finally:
        calls = [counter.end() for counter in counters]
    much = {"roundtrip": 1e6 / value, "stream": value * 1e3, "connect": value}[case.what] * options.seconds
    spent = {name: (ns - before.get(name, (0, 0))[1]) / 1000 for name, (_, ns) in programs().items()}
    of = {"roundtrip": "round trip", "stream": "MB", "connect": "connection"}[case.what]
    print(f"{scene.path} ({scene.variant}): {case.name}, {cores}: for each of {much:.0f}, as one {of}")
    print_counts("microseconds of BPF programs", spent, much)
    for number, counts in enumerate(calls):
        print_counts(f"system calls of agent {number + 1}", counts, much)
    return {
        "path": scene.path,
        "variant": scene.variant,
        "case": f"{case.name}, {cores}",
        "of": of,
        "bpf_us": {name: round(us / much, 3) for name, us in spent.items() if us > 0},
        "calls": [{name: round(count / much, 3) for name, count in counts.items()} for counts in calls],
    }


def measure(kind, options):
    rows = []
    with Lab("bench") as lab, open(STATS) as stats:
        before = stats.read()
        scene = kind(lab)
        scene.prepare()
        with open(STATS, "w") as file:
            file.write("1")
        try:
            for cores in scene.cores:
                scene.pin(cores)
                for case in scene.cases:
                    if options.case in f"{case.name}, {cores}" and case.what != "crowded":
                        rows.append(profile_case(scene, case, cores, options))
        finally:
            with open(STATS, "w") as file:
                file.write(before)
    return rows
