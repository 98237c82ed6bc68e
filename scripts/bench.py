# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Ratios against plain TCP over the same veth, measured alternately in one run: median, and lowest to highest.

A ratio above 1 means better than TCP, whatever the unit. The baseline is the same program in a cgroup that no
smc-agent program is attached to. Numbers are of the machine at hand; only the ratios are worth comparing.

--codec measures the wire library instead: nanoseconds and allocations per message.

Paths: plain (an agent runs, the connection is not eligible), fallback (spliced by the client's agent, the
server has none), smcd.
"""
import argparse
import json
import statistics
import subprocess
import sys

from lab.basics import test_program, wait_for
from lab.nodes import Lab

PEER = test_program("smc-bench-peer")
CODEC = test_program("smc-bench-codec")
PORT, FRESH = 7000, 8000  # FRESH: ports that are used once, for connections that must not be cached
# name, peer's arguments, unit, higher is better
CASES = [
    ("64 B round trip", ("roundtrip", 64), "us", False),
    ("4 KiB round trip", ("roundtrip", 4096), "us", False),
    ("64 KiB stream", ("stream", 65536), "GB/s", True),
    ("connections", ("connect", 1), "1/s", True),
]
FRESH_EACH = 150


class Bench:
    def __init__(self, lab, path, seconds):
        self.lab, self.path, self.seconds = lab, path, seconds
        self.a, self.b = lab.node("a"), lab.node("b")
        lab.link(self.a, self.b)
        self.b.popen([PEER, "serve", str(PORT), "1"])
        self.fresh = FRESH
        quiet = {"log": {"level": "warn"}}
        if path == "plain":
            rules = [
                {"name": "not-the-bench", "action": "deny", "ports": [str(PORT)]},
                {"name": "all", "action": "allow"},
            ]
            self.a.start_agent(policy={"rules": rules}, **quiet)
            self.b.start_agent(policy={"rules": rules}, **quiet)
        else:
            self.a.start_agent(fallback={"cache_s": 1}, **quiet)
            if path == "smcd":
                self.b.start_agent(**quiet)
        wait_for("the server", lambda: f":{PORT} " in self.b.run(["ss", "-Hltn"]).stdout)

    def once(self, arguments, ours):
        what, size = arguments
        port = PORT
        if self.path == "fallback" and ours:
            # every connection must meet the agent for the first time
            count = FRESH_EACH if what == "connect" else 1
            port, self.fresh = self.fresh, self.fresh + count
            server = self.b.popen([PEER, "serve", str(port), str(count)])
            wait_for("fresh ports", lambda: f":{port + count - 1} " in self.b.run(["ss", "-Hltn"]).stdout)
            size = count if what == "connect" else size
        done = self.a.run(
            [PEER, what, self.b.ip4, str(port), str(size), str(self.seconds)], cgroup=None if ours else self.lab.cgroup
        )
        if port != PORT:
            server.kill()
            server.wait()
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return float(done.stdout)

    def check_path(self):
        totals = self.a.agent.totals()
        wanted = {"plain": set(), "fallback": {"fallback"}, "smcd": {"smcd"}}[self.path]
        if {path for path, _ in totals} != wanted:
            raise RuntimeError(f"connections took another path: {totals}")


def measure(path, rounds, seconds):
    results = []
    with Lab("bench") as lab:
        bench = Bench(lab, path, seconds)
        for name, arguments, unit, higher in CASES:
            pairs = [(bench.once(arguments, True), bench.once(arguments, False)) for _ in range(rounds)]
            ratios = sorted(o / b if higher else b / o for o, b in pairs)
            ours, base = (statistics.median(side) for side in zip(*pairs))
            results.append(
                {
                    "path": path,
                    "case": name,
                    "unit": unit,
                    "ours": round(ours, 3),
                    "baseline": round(base, 3),
                    "ratio": round(statistics.median(ratios), 3),
                    "lowest": round(ratios[0], 3),
                    "highest": round(ratios[-1], 3),
                }
            )
            r = results[-1]
            print(
                f"{path:9} {name:17} {r['ours']:>12,.2f} {r['baseline']:>12,.2f} {unit:5} {r['ratio']:>6.2f}x "
                f"({r['lowest']:.2f} to {r['highest']:.2f})",
                flush=True,
            )
        bench.check_path()
    return results


def measure_codec():
    results = []
    print(f"{'case':25} {'ns':>8} {'allocations':>12}")
    for line in subprocess.run([CODEC], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        case, nanoseconds, allocations = line.split("\t")
        results.append(
            {"path": "codec", "case": case, "unit": "ns", "ours": float(nanoseconds), "allocations": int(allocations)}
        )
        print(f"{case:25} {nanoseconds:>8} {allocations:>12}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", choices=["plain", "fallback", "smcd"], help="only this one")
    parser.add_argument("--codec", action="store_true", help="the wire library, no network")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of measurements (default 7)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each (default 1)")
    options = parser.parse_args()
    results = measure_codec() if options.codec else measure_paths(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"results": results}, file, indent=2)
    return 0


def measure_paths(options):
    print(
        f"{'path':9} {'case':17} {'ours':>12} {'plain TCP':>12} {'unit':5} {'ratio':>7} "
        f"(lowest to highest of {options.rounds})"
    )
    results = []
    for path in [options.path] if options.path else ["plain", "fallback", "smcd"]:
        results += measure(path, options.rounds, options.seconds)
    return results


if __name__ == "__main__":
    sys.exit(main())
