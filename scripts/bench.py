# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Ratios against plain TCP, measured alternately in one run: median, and lowest to highest.

A ratio above 1 means better than TCP, whatever the unit. The baseline is the same program between two namespaces of
its own, joined by a veth pair as the others are, that no agent has ever seen. Numbers are of the machine at hand;
only the ratios are worth comparing. --cores one puts everything on one processor, agents included; split puts each
end on its own.

--codec measures the wire library instead: nanoseconds and allocations per message.

Paths: denied (agents run, the policy leaves the connection alone), asked (the server's node has no agent: every
connection asks, and is plain TCP), smcd.
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
PORT = 7000
# name, peer's arguments, unit, higher is better
CASES = [
    ("64 B round trip", ("roundtrip", 64), "us", False),
    ("4 KiB round trip", ("roundtrip", 4096), "us", False),
    ("64 KiB stream", ("stream", 65536), "GB/s", True),
    ("crowded 64 B", ("crowded", 64), "us", False),  # round trip, beside four streams
    ("connections", ("connect", 1), "1/s", True),
]
PROCESSORS = {"free": ("0,1", "0,1"), "one": ("0", "0"), "split": ("0", "1")}


class Bench:
    def __init__(self, lab, path, options):
        self.path, self.seconds = path, options.seconds
        self.client_on, server_on = PROCESSORS[options.cores]
        self.a, self.b, self.c, self.d = (lab.node(name) for name in "abcd")
        lab.link(self.a, self.b)
        lab.link(self.c, self.d)
        for server in (self.b, self.d):
            server.popen(["taskset", "-c", server_on, PEER, "serve", str(PORT), "1"])
            wait_for("the server", lambda node=server: f":{PORT} " in node.run(["ss", "-Hltn"]).stdout)
        more = {"log": {"level": "warn"}}
        if path == "denied":
            more["policy"] = {"rules": [{"name": "none", "action": "deny"}, {"name": "all", "action": "allow"}]}
        self.start_agent(self.a, self.client_on, **more)
        if path != "asked":
            self.start_agent(self.b, server_on, **more)

    @staticmethod
    def start_agent(node, processors, **more):
        node.start_agent(**more)
        subprocess.run(["taskset", "-apc", processors, str(node.agent.pid)], check=True, stdout=subprocess.DEVNULL)

    def once(self, arguments, ours):
        client, server = (self.a, self.b) if ours else (self.c, self.d)
        what, size = arguments
        command = [PEER, what, server.ip4, str(PORT), str(size), str(self.seconds)]
        done = client.run(["taskset", "-c", self.client_on, *command])
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return float(done.stdout)

    def check_path(self):
        totals, decisions = self.a.agent.totals(), self.a.agent.decisions()
        wanted = {"denied": "SMC_OUT_DENIED", "asked": "SMC_ANSWER_PLAIN", "smcd": "SMC_LEG_PAIRED"}[self.path]
        if decisions[wanted] == 0 or {path for path, _ in totals} != ({"smcd"} if self.path == "smcd" else set()):
            raise RuntimeError(f"connections took another path: {totals} {decisions}")


def measure(path, options):
    results = []
    with Lab("bench") as lab:
        bench = Bench(lab, path, options)
        for name, arguments, unit, higher in CASES:
            if options.case and options.case not in name:
                continue
            pairs = [
                (bench.once(arguments, True), bench.once(arguments, False))
                if number % 2
                else (bench.once(arguments, False), bench.once(arguments, True))[::-1]
                for number in range(options.rounds)
            ]
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
    parser.add_argument("--path", choices=["denied", "asked", "smcd"], help="only this one")
    parser.add_argument("--case", help="only those whose name has this in it")
    parser.add_argument("--cores", choices=sorted(PROCESSORS), default="free", help="where it runs (default free)")
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
    for path in [options.path] if options.path else ["denied", "asked", "smcd"]:
        results += measure(path, options)
    return results


if __name__ == "__main__":
    sys.exit(main())
