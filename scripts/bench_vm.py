# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""SMC-R in two virtual machines, measured alternately in one run: agents (ordinary sockets), the kernel's net/smc
(AF_SMC sockets), and TCP, all over the same emulated Ethernet and soft-RoCE. Median, and the ratio of agents to
kernel with its range; above 1 is better than the kernel.

QEMU without KVM: the figures say how much work something is, not how fast hardware would do it.
"""
import argparse
import json
import statistics
import sys

from lab import netsmc
from lab.basics import test_program, wait_for
from lab.machines import VmLab

PEER = test_program("smc-bench-peer")
KERNEL = "6.12"
# way: port, how the program is started
WAYS = {"agents": (7000, [PEER]), "kernel": (7001, [PEER, "--smc"]), "tcp": (7002, [PEER])}
# name, the program's arguments, unit, higher is better
CASES = [
    ("stream, 64 KiB writes", ("stream", 65536), "MB/s", True, 1000.0),
    ("64 B round trip", ("roundtrip", 64), "us", False, 1.0),
]
DENY = {"default": "deny", "rules": [{"name": "the-agents", "action": "allow", "ports": [str(WAYS["agents"][0])]}]}


class Bench:
    def __init__(self, lab, options):
        self.options = options
        self.a, self.b = lab.machine("a", KERNEL), lab.machine("b", KERNEL)
        lab.boot()
        for machine in (self.a, self.b):
            netsmc.make_ready(machine)
        config = {"log": {"level": "info"}, "policy": DENY, "roce": {"rmbe_kib": options.rmbe_kib}}
        self.agents = [machine.start_agent(config) for machine in (self.a, self.b)]
        for way, (port, program) in WAYS.items():
            self.b.start([*program, "serve", port, 1], f"serve-{way}.log")
            wait_for("the server", lambda: f":{port:04X} " in self.b.sh("cat /proc/net/tcp"))

    def once(self, way, what, size, seconds):
        port, program = WAYS[way]
        return float(self.a.run([*program, what, self.b.ip4, port, size, seconds]).stdout)

    def forget_groups(self):
        """A new soft-RoCE device ends all link groups, the agents' and the kernel's."""
        for machine in (self.a, self.b):
            machine.run(["rdma", "link", "delete", "rxe0"], timeout=30)
            machine.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"])
        for agent in self.agents:
            wait_for("the device", lambda: agent.smcr_devices() and not agent.smcr_groups())

    def contacts(self):
        """Milliseconds of first and of subsequent contacts, by way."""
        first, later = {way: [] for way in WAYS}, {way: [] for way in WAYS}
        for _ in range(self.options.rounds):
            self.forget_groups()
            for way in WAYS:
                first[way].append(self.once(way, "contact", 1, 0))
                later[way] += [self.once(way, "contact", 1, 0) for _ in range(3)]
        return first, later

    def check(self):
        totals = {t["path"] for t in self.agents[0].status()["totals"]}
        kernel = netsmc.counters(self.a)
        if totals != {"smcr"} or kernel["fallbacks"] or not kernel["client"]:
            raise RuntimeError(f"connections took another path: {totals}, {kernel}")


def report(name, unit, values, higher):
    ratios = sorted(a / k if higher else k / a for a, k in zip(values["agents"], values["kernel"]))
    row = {way: round(statistics.median(values[way]), 2) for way in WAYS}
    row |= {
        "case": name,
        "unit": unit,
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(ratios[0], 3),
        "highest": round(ratios[-1], 3),
    }
    print(
        f"{name:22} {row['agents']:>10} {row['kernel']:>10} {row['tcp']:>10} {unit:5} {row['ratio']:>6.2f}x "
        f"({row['lowest']:.2f} to {row['highest']:.2f})",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of measurements (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each (default 3)")
    parser.add_argument(
        "--rmbe-kib", type=int, default=256, help="the agents' RMBEs; the kernel's are its own (default 256)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    options = parser.parse_args()
    results = []
    print(
        f"{'case':22} {'agents':>10} {'kernel':>10} {'TCP':>10} {'unit':5} {'agents/kernel':>7} (of {options.rounds})"
    )
    with VmLab("bench") as lab:
        bench = Bench(lab, options)
        for name, (what, size), unit, higher, scale in CASES:
            values = {way: [] for way in WAYS}
            for _ in range(options.rounds):
                for way in WAYS:
                    values[way].append(bench.once(way, what, size, options.seconds) * scale)
            results.append(report(name, unit, values, higher))
        first, later = bench.contacts()
        results.append(report("first contact", "ms", first, False))
        results.append(report("subsequent contact", "ms", later, False))
        bench.check()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"results": results}, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
