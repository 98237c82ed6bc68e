# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Counts what a case takes: system calls by name and switches, of each agent and of the programs, and how long BPF
programs ran, for each round trip, MB or connection. Counting makes each a little slower."""
import contextlib
import json
import struct

from lab.basics import sh
from lab.nodes import Lab

from .cases import BASELINE, OURS
from .tracing import Tracing, call_names

STATS = "/proc/sys/kernel/bpf_stats_enabled"
SWITCHES = "switches"
PROGRAM = "smc-bench-peer"  # a process's name has 15 bytes
SHOWN = 0.05  # calls that are rarer are not printed


def read(tracing):
    """For each process, by its ID: its name, and how often it made each call."""
    calls = call_names()
    names = {
        struct.unpack("I", key)[0]: value.split(b"\0")[0].decode() for key, value in tracing.entries("names", 4, 16)
    }
    found = {}
    for key, value in tracing.entries("counts", 8, 8):
        process, call = struct.unpack("Ii", key)
        name = SWITCHES if call == -1 else calls.get(call, str(call))
        found.setdefault(process, (names.get(process, ""), {}))[1][name] = struct.unpack("Q", value)[0]
    return found


@contextlib.contextmanager
def counting():
    """Counts system calls and switches in its body; then the list that it returned has them."""
    found = []
    with Tracing("counts.bpf.c") as tracing:
        before = read(tracing)
        yield found
        for process, (name, counts) in read(tracing).items():
            old = before.get(process, ("", {}))[1]
            found.append((process, name, {call: count - old.get(call, 0) for call, count in counts.items()}))


def programs():
    """For each BPF program: how often it ran, and for how many nanoseconds."""
    found = {}
    for one in json.loads(sh("bpftool", "-j", "prog", "show")):
        runs, spent = found.get(one.get("name", "?"), (0, 0))
        found[one.get("name", "?")] = (runs + one.get("run_cnt", 0), spent + one.get("run_time_ns", 0))
    return found


def each(counts, much):
    return {name: round(count / much, 2) for name, count in counts.items() if count / much >= 0.005}


def sum_of(many):
    total = {}
    for counts in many:
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return total


def count_way(scene, which, case, cores, seconds):
    """How often the case was done in one run, and the calls of each process: ID, name, counts."""
    with counting() as found:
        value, _ = scene.once(which, case, cores, seconds)
    much = {"roundtrip": 1e6 / value, "stream": value * 1e3, "connect": value}[case.what] * seconds
    return much, found


def print_counts(title, counts):
    calls = {name: count for name, count in counts.items() if name != SWITCHES}
    often = sorted(((count, name) for name, count in calls.items() if count >= SHOWN), reverse=True)
    print(
        f"  {title:20} {sum(calls.values()):>7.2f} calls {counts.get(SWITCHES, 0):>6.2f} switches: "
        + ", ".join(f"{name} {count:.2f}" for count, name in often)
    )


def count_case(scene, case, cores, options):
    before = programs()
    much, found = count_way(scene, OURS, case, cores, options.seconds)
    spent = {name: (ns - before.get(name, (0, 0))[1]) / 1000 for name, (_, ns) in programs().items()}
    agents = [agent.pid for agent, _ in scene.agents]
    rows = {f"agent {agents.index(pid) + 1}": each(counts, much) for pid, _, counts in found if pid in agents}
    rows["programs"] = each(sum_of(counts for _, name, counts in found if name == PROGRAM), much)
    much_of_tcp, found = count_way(scene, BASELINE, case, cores, options.seconds)
    rows["programs over TCP"] = each(sum_of(counts for _, name, counts in found if name == PROGRAM), much_of_tcp)
    of = {"roundtrip": "round trip", "stream": "MB", "connect": "connection"}[case.what]
    print(f"{scene.path} ({scene.variant}): {case.name}, {cores}: for each {of}, of {much:.0f}")
    for title, counts in sorted(rows.items()):
        print_counts(title, counts)
    bpf_us = {name: round(us / much, 3) for name, us in spent.items() if us / much >= 0.01 and "count_" not in name}
    print(f"  {'BPF programs':20} {sum(bpf_us.values()):>7.2f} us: " + ", ".join(f"{n} {u}" for n, u in bpf_us.items()))
    return {
        "path": scene.path,
        "variant": scene.variant,
        "case": f"{case.name}, {cores}",
        "of": of,
        "bpf_us": bpf_us,
        "counts": rows,
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
                    if options.case in f"{case.name}, {cores}" and not case.what.startswith("crowded"):
                        rows.append(count_case(scene, case, cores, options))
        finally:
            with open(STATS, "w") as file:
                file.write(before)
    return rows
