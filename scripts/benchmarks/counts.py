# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Counts what a case takes: system calls by name and switches, of each agent and of the programs, and how long BPF
programs ran, for each round trip, MB or connection. Counting makes each a
little slower."""
import contextlib
import ctypes
import json
import os
import re
import struct
import subprocess
import tempfile

from lab.basics import sh
from lab.nodes import Lab

from .cases import BASELINE, OURS

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "counts.bpf.c")
STATS = "/proc/sys/kernel/bpf_stats_enabled"
SWITCHES = "switches"
PROGRAM = "smc-bench-peer"  # a process's name has 15 bytes
SHOWN = 0.05  # calls that are rarer are not printed


def call_names():
    """The names of system calls by their number."""
    defined = subprocess.run(
        ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", defined.stdout)}


class Counter:
    """Counts until close(), by BPF programs on the kernel's tracepoints."""

    def __init__(self):
        self.calls = call_names()
        self.bpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
        for function in (self.bpf.bpf_object__open, self.bpf.bpf_object__next_program, self.bpf.bpf_program__attach):
            function.restype = ctypes.c_void_p
        with tempfile.TemporaryDirectory() as directory:
            built = os.path.join(directory, "counts.bpf.o")
            include = "/usr/include/" + sh("cc", "-print-multiarch").strip()
            sh("clang-14", "-O2", "-g", "-target", "bpf", "-idirafter", include, "-c", SOURCE, "-o", built)
            self.object = ctypes.c_void_p(self.bpf.bpf_object__open(built.encode()))
        if not self.object or self.bpf.bpf_object__load(self.object) != 0:
            raise OSError(ctypes.get_errno(), "loading " + SOURCE)
        self.links = []
        program = None
        while program := self.bpf.bpf_object__next_program(self.object, ctypes.c_void_p(program)):
            self.links.append(ctypes.c_void_p(self.bpf.bpf_program__attach(ctypes.c_void_p(program))))
            if not self.links[-1]:
                raise OSError(ctypes.get_errno(), "attaching a program of " + SOURCE)

    def close(self):
        for link in self.links:
            self.bpf.bpf_link__destroy(link)
        self.bpf.bpf_object__close(self.object)

    def entries(self, name, key_bytes, value_bytes):
        """Pairs of key and value of a map."""
        map_fd = self.bpf.bpf_object__find_map_fd_by_name(self.object, name.encode())
        key, value = ctypes.create_string_buffer(key_bytes), ctypes.create_string_buffer(value_bytes)
        last = None
        while self.bpf.bpf_map_get_next_key(map_fd, last, key) == 0:
            last = ctypes.create_string_buffer(key.raw, key_bytes)
            if self.bpf.bpf_map_lookup_elem(map_fd, key, value) == 0:
                yield key.raw, value.raw

    def read(self):
        """For each process, by its ID: its name, and how often it made each call."""
        names = {
            struct.unpack("I", key)[0]: value.split(b"\0")[0].decode() for key, value in self.entries("names", 4, 16)
        }
        found = {}
        for key, value in self.entries("counts", 8, 8):
            process, call = struct.unpack("Ii", key)
            name = SWITCHES if call == -1 else self.calls.get(call, str(call))
            found.setdefault(process, (names.get(process, ""), {}))[1][name] = struct.unpack("Q", value)[0]
        return found


@contextlib.contextmanager
def counting():
    """Counts system calls and switches in its body; then the list that it returned has them."""
    counter = Counter()
    found = []
    try:
        before = counter.read()
        yield found
        for process, (name, counts) in counter.read().items():
            old = before.get(process, ("", {}))[1]
            found.append((process, name, {call: count - old.get(call, 0) for call, count in counts.items()}))
    finally:
        counter.close()


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
