#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections between two agents on a machine that is busy, or whose agents stand still: the path that they take, and
whether that lasts. Prints a table; see docs/testing.md.

    load.py [LOAD ...]        all of them without an argument; wants root

A connection is right if it echoes. During the load it may take any path, because agents lack processor time; six
seconds after the load all must be SMC-D again (a server that has failed once is not asked for five). Times are shown,
beside those of plain TCP in the same run, and decide nothing."""
import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "netns"), os.path.join(HERE, "..", "..", "scripts")]

from base import ECHO  # noqa: E402
from lab.basics import wait_for  # noqa: E402
from lab.nodes import Lab  # noqa: E402

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

# One connection after the other to each of two ports, for so many seconds.
# {"served", "plain": [how many echoed, how many did not, the slowest in seconds]}
CLIENT = """
import json, socket, sys, time
seen = {'5000': [0, 0, 0.0], '5001': [0, 0, 0.0]}
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for port, sums in seen.items():
        began = time.monotonic()
        try:
            c = socket.create_connection((sys.argv[1], int(port)), 20); c.sendall(b'x' * 100); got = b''
            while len(got) < 100 and (d := c.recv(100)): got += d
            c.close(); sums[got != b'x' * 100] += 1
        except OSError: sums[1] += 1
        sums[2] = max(sums[2], time.monotonic() - began)
print(json.dumps({'served': seen['5000'], 'plain': seen['5001']}))
"""
BUSY = "while True: pass"
# Takes a processor for part of each period; no other process runs there. Arguments: seconds, period, processor.
HOG = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[3])]); os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
while True:
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end: pass
    time.sleep(float(sys.argv[2]) - float(sys.argv[1]))
"""


@contextlib.contextmanager
def programs(*commands):
    """Runs programs that die with this process: they leave no processor time, so no other process could end them."""
    die = lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    running = [subprocess.Popen(["/usr/bin/python3", "-c", *command], preexec_fn=die) for command in commands]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def busy(count):
    return programs(*[[BUSY]] * count)


def hogs(taken, period):
    return programs(*[[HOG, str(taken), str(period), str(cpu)] for cpu in sorted(os.sched_getaffinity(0))])


@contextlib.contextmanager
def stopped(nodes, seconds):
    """A load: the agents are stopped for its duration."""
    for node in nodes:
        node.agent.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    for node in nodes:
        node.agent.send_signal(signal.SIGCONT)
    yield


LOADS = {
    "nothing": lambda nodes: contextlib.nullcontext(),
    "8 busy processes": lambda nodes: busy(8),
    "40 busy processes": lambda nodes: busy(40),
    "SCHED_FIFO, 0.3 of each 0.4 s": lambda nodes: hogs(0.3, 0.4),
    "SCHED_FIFO, 1.0 of each 1.2 s": lambda nodes: hogs(1.0, 1.2),
    "SIGSTOP of both for 0.3 s": lambda nodes: stopped(nodes, 0.3),
    "SIGSTOP of both for 1 s": lambda nodes: stopped(nodes, 1),
    "SIGSTOP of both for 3 s": lambda nodes: stopped(nodes, 3),
}
RULES = [
    {"name": "served", "action": "allow", "direction": "both", "ports": ["5000"], "remotes": ["10.0.0.0/8"]},
]


def sums(node):
    return {path: sum(count for (p, _), count in node.agent.totals().items() if p == path) for path in PATHS}


AFTER = 6
PATHS = ("smcd", "fallback", "refused")


def connect(nodes, seconds):
    """The client's results, and the paths of its connections: {"smcd", "fallback", "refused", "never asked"}"""
    a, b = nodes
    before = sums(a)
    done = a.run(["/usr/bin/python3", "-c", CLIENT, b.ip4, str(seconds)], timeout=300, check=True)
    seen = json.loads(done.stdout)
    after = sums(a)
    ways = {path: after[path] - before[path] for path in PATHS}
    ways["plain"] = seen["served"][0] + seen["served"][1] - sum(ways.values())
    return seen, ways


def start(nodes):
    for node in nodes:
        node.start_agent(policy={"rules": RULES})


def upgrade(nodes):
    """Another agent takes the place of each agent, and is a child process of it."""
    for node in nodes:
        done = node.agent.ctl("upgrade")
        if done.returncode != 0:
            raise RuntimeError(f"smcctl upgrade: {done.stdout}{done.stderr}")
        wait_for("the next agent", lambda: (node.agent.status() or {"agent": {"serving": False}})["agent"]["serving"])


def measure(name, load, when):
    """A row of the table, and whether all connections were right."""
    with Lab(f"load.{when}.{name}") as lab:
        nodes = a, b = lab.node("a"), lab.node("b")
        lab.link(a, b)
        for port in (5000, 5001):
            server = b.popen(["/usr/bin/python3", "-B", "-c", ECHO, b.ip4, port], stdout=subprocess.PIPE, text=True)
            server.stdout.readline()
        if when != "at the start":
            start(nodes)
            connect(nodes, 1)
        with load(nodes):
            if when == "at the start":
                start(nodes)
            elif when == "at an upgrade":
                upgrade(nodes)
            seen, ways = connect(nodes, 5)
        time.sleep(AFTER)  # a part of what is measured: nothing lasts longer
        later, later_ways = connect(nodes, 2)
        wrong = seen["served"][1] + seen["plain"][1] + later["served"][1] + later["plain"][1]
        row = [
            f"{name}, {when}" if when else name,
            *(ways[way] for way in (*PATHS, "plain")),
            f"{seen['served'][2]:.2f} s",
            f"{seen['plain'][2]:.2f} s",
            f"{later_ways['smcd']} of {later['served'][0]}",
            wrong,
        ]
        return row, wrong == 0 and later_ways["smcd"] == later["served"][0] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", nargs="*", help="one of: " + "; ".join(LOADS) + " (all if none is named)")
    chosen = parser.parse_args().load or list(LOADS)
    for name in chosen:
        if name not in LOADS:
            parser.error(f'"{name}" is no load (--help lists them)')
    print("| load | SMC-D | fallback | refused | plain TCP | slowest | plain TCP's | later SMC-D | wrong |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    bad = []
    for name in chosen:
        whens = ["", "at the start", "at an upgrade"] if "busy" in name or "FIFO" in name else [""]
        for when in whens:
            row, right = measure(name, LOADS[name], when)
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
            if not right:
                bad.append(row[0])
    for name in bad:
        print(f"load: {name}: a connection failed, or the load has outlasted itself", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
