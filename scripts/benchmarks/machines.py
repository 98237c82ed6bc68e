# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Paths between virtual machines. QEMU has no KVM here: the figures say how much work something is, not how fast
hardware would do it. Processor time is that of both QEMU processes."""
import os

from lab import netsmc
from lab.basics import wait_for
from lab.machines import VmLab

from .cases import BASELINE, CASES, FIRST_CONTACT, OURS, PEER, SUBSEQUENT_CONTACT, Scene, measure_all

KERNEL = "the kernel's net/smc"
TCP = "TCP"
ONLY_SOCKETS = [case for case in CASES if case.what != "crowded"]


class Machines(Scene):
    """Two virtual machines. `ways`: the port and the program's command of each. Only our way is accelerated."""

    cores = ("a core each",)
    kernel = os.environ.get("SMC_VM_KERNEL", "7")
    ways = {}
    accelerated = ""

    def __init__(self, lab):
        self.lab = lab
        self.a, self.b = lab.machine("a", self.kernel), lab.machine("b", self.kernel)

    @classmethod
    def open_lab(cls):
        return VmLab(f"bench-{cls.path}", capture=False)

    def configuration(self):
        return {}

    def make_ready(self, machine):
        pass

    def prepare(self):
        self.lab.boot()
        port = self.ways[OURS][0]
        rules = [{"name": "ours", "action": "allow", "ports": [str(port)]}]
        config = {"log": {"level": "info"}, "policy": {"default": "deny", "rules": rules}, **self.configuration()}
        for machine in (self.a, self.b):
            self.make_ready(machine)
        self.agents = [machine.start_agent(config) for machine in (self.a, self.b)]
        for port, program in self.ways.values():
            self.b.start([*program, "serve", port, 1], f"serve-{port}.log")
            wait_for("the server", lambda: f":{port:04X} " in self.b.sh("cat /proc/net/tcp"))

    def busy(self):
        total = 0
        for machine in (self.a, self.b):
            with open(f"/proc/{machine.qemu.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def once(self, which, case, cores, seconds):
        port, program = self.ways[which]
        seconds = 0 if case.what == "contact" else seconds
        before = self.busy()
        done = self.a.run([*program, case.what, self.b.ip4, port, case.size, seconds], timeout=120)
        return float(done.stdout), self.busy() - before

    def check(self):
        paths = {path for path, _ in self.agents[0].totals()}
        if paths != {self.accelerated}:
            raise RuntimeError(f"connections took another path: {paths}")


class SmcR(Machines):
    path, variant, baseline_is, beside = "smcr", "soft-roce", KERNEL, (TCP,)
    kernel, accelerated = "6.12", "smcr"
    ways = {OURS: (7000, [PEER]), BASELINE: (7001, [PEER, "--smc"]), TCP: (7002, [PEER])}
    cases = [*ONLY_SOCKETS, FIRST_CONTACT, SUBSEQUENT_CONTACT]

    def make_ready(self, machine):
        netsmc.make_ready(machine)

    def configuration(self):
        return {"roce": {"rmbe_kib": 256}}

    def before(self, case):
        """A new soft-RoCE device ends all link groups, the agents' and the kernel's."""
        if case is not FIRST_CONTACT:
            return
        for machine in (self.a, self.b):
            machine.run(["rdma", "link", "delete", "rxe0"], timeout=30)
            machine.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"])
        for agent in self.agents:
            wait_for("the device", lambda: agent.smcr_devices() and not agent.smcr_groups())

    def check(self):
        super().check()
        kernel = netsmc.counters(self.a)
        if kernel["fallbacks"] or not kernel["client"]:
            raise RuntimeError(f"the kernel's connections took another path: {kernel}")


class Ivshmem(Machines):
    path, variant, baseline_is = "ivshmem", "vm", "TCP over virtio-net"
    accelerated = "smcd"
    ways = {OURS: (7000, [PEER]), BASELINE: (7001, [PEER])}
    cases = ONLY_SOCKETS

    @classmethod
    def open_lab(cls):
        return VmLab("bench-ivshmem", area_mib=256, capture=False)

    def configuration(self):
        return {"ism": {"provider": "ivshmem"}, "roce": {"enabled": False}}


class Doorbells(Ivshmem):
    variant = "doorbells"

    @classmethod
    def open_lab(cls):
        return VmLab("bench-doorbells", area_mib=256, doorbells=True, capture=False)

    def make_ready(self, machine):
        machine.modprobe("vfio-pci")
        machine.pci_driver("0x1110", "vfio-pci")


SCENES = [SmcR, Ivshmem, Doorbells]


def measure(kind, options):
    with kind.open_lab() as lab:
        return measure_all(kind(lab), options)
