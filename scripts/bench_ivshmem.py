# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""SMC-D between two virtual machines that share memory, against TCP over their virtio network, measured alternately in
one run. Above 1 is better than TCP.

QEMU without KVM: the figures say how much work something is, not how fast hardware would do it. CPU is that of both
QEMU processes, for a round trip, a MB or a connection.
"""
import argparse
import json
import os
import statistics
import sys

from lab.basics import test_program, wait_for
from lab.machines import VmLab

PEER = test_program("smc-bench-peer")
PORTS = {True: 7000, False: 7001}  # ours, TCP
# name, the program's arguments, unit, higher is better, scale to the unit
CASES = [
    ("64 B round trip", ("roundtrip", 64), "us", False, 1.0),
    ("4 KiB round trip", ("roundtrip", 4096), "us", False, 1.0),
    ("64 KiB stream", ("stream", 65536), "GB/s", True, 1.0),
    ("256 KiB stream", ("stream", 262144), "GB/s", True, 1.0),
    ("connections", ("connect", 1), "1/s", True, 1.0),
]
CONFIG = {
    "log": {"level": "info"},
    "ism": {"provider": "ivshmem"},
    "roce": {"enabled": False},
    "policy": {"default": "deny", "rules": [{"name": "ours", "action": "allow", "ports": [str(PORTS[True])]}]},
}


class Bench:
    def __init__(self, lab, kernel):
        self.a, self.b = lab.machine("a", kernel), lab.machine("b", kernel)
        lab.boot()
        self.agents = [machine.start_agent(CONFIG) for machine in (self.a, self.b)]
        for port in PORTS.values():
            self.b.start([PEER, "serve", port, 1], f"serve-{port}.log")
            wait_for("the server", lambda: f":{port:04X} " in self.b.sh("cat /proc/net/tcp"))

    def busy(self):
        """Seconds of processor time of the machines."""
        total = 0
        for machine in (self.a, self.b):
            with open(f"/proc/{machine.qemu.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def once(self, ours, what, size, seconds):
        before = self.busy()
        value = float(self.a.run([PEER, what, self.b.ip4, PORTS[ours], size, seconds], timeout=120).stdout)
        count = {"roundtrip": seconds * 1e6 / value, "stream": value * 1e3 * seconds, "connect": value * seconds}[what]
        return value, (self.busy() - before) * 1e6 / count

    def check(self):
        totals = {t["path"] for t in self.agents[0].status()["totals"]}
        if totals != {"smcd"}:
            raise RuntimeError(f"connections took another path: {totals}")


def measure(bench, case, options):
    name, (what, size), unit, higher, scale = case
    pairs, cpu = [], []
    for number in range(options.rounds):
        order = (True, False) if number % 2 else (False, True)
        found = {ours: bench.once(ours, what, size, options.seconds) for ours in order}
        pairs.append((found[True][0] * scale, found[False][0] * scale))
        cpu.append((found[True][1], found[False][1]))
    ratios = sorted(o / t if higher else t / o for o, t in pairs)
    ours, base = (statistics.median(side) for side in zip(*pairs))
    ours_cpu, base_cpu = (statistics.median(side) for side in zip(*cpu))
    row = {
        "path": "ivshmem",
        "case": f"{name}, a core each",
        "unit": unit,
        "ours": round(ours, 4),
        "baseline": round(base, 4),
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(ratios[0], 3),
        "highest": round(ratios[-1], 3),
        "cpu_us": round(ours_cpu, 2),
        "baseline_cpu_us": round(base_cpu, 2),
    }
    print(
        f"{row['case']:32}{ours:>11,.3f} {base:>11,.3f} {unit:5}{row['ratio']:>6.2f}x "
        f"({row['lowest']:.2f} to {row['highest']:.2f}) {row['cpu_us']:>10} {row['baseline_cpu_us']:>10}",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", choices=["ivshmem"], default="ivshmem")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of measurements (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each (default 2)")
    parser.add_argument("--case", default="", help="only those whose name has this in it")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    options = parser.parse_args()
    print(f"{'case':32}{'SMC-D':>11} {'TCP':>11} {'unit':5}{'ratio':>7} {'CPU us':>24} {'of TCP':>10}")
    with VmLab("bench-ivshmem", area_mib=256) as lab:
        bench = Bench(lab, os.environ.get("SMC_VM_KERNEL", "7"))
        results = [measure(bench, case, options) for case in CASES if options.case in case[0]]
        bench.check()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"results": results}, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
