# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Link groups with two links whose other end is the Linux kernel's own net/smc, in either role; and, beside them, the
kernel alone. A cable of one side is pulled under load and plugged in again, then the other one. The TCP connections go
by a third network. How long bytes stood still at the readers is printed."""
import os
import unittest

from flows import Flow
from lab import netsmc
from lab.basics import Timeout, wait_for
from lab.machines import VmLab
from programs import NATIVE, TCP

ROCE = {"test_link_s": 3, "link_retry_s": 2}
TIMEOUT = 90  # Linux asks for a new link at most every 30 s


def same_network(machine):
    """Linux wants the GIDs of SMC-Rv2 in the network of the TCP connection (smc_ib_determine_gid_rcu())."""
    for wire in (1, 2):
        machine.sh(f"ip addr flush dev eth{wire}; ip addr add 10.99.0.{10 * wire + machine.index}/24 dev eth{wire}")


def wire_of(device):
    return 1 + int(device.removeprefix("rxe"))


def native(machine):
    netsmc.make_ready(machine)
    for device in ("rxe0", "rxe1"):
        netsmc.ask(machine, "pnet", "RACK1", "eth0", device)


class Case(unittest.TestCase):
    kernels = ()

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab(cls.__name__.lower(), roce_wires=2))
        cls.a, cls.b = (cls.lab.machine(name, kernel) for name, kernel in zip("ab", cls.kernels))
        cls.lab.boot()
        for machine in (cls.a, cls.b):
            same_network(machine)
        cls.port = 7400

    def tearDown(self):
        for machine in (self.a, self.b):
            for wire in (1, 2):
                machine.set_link(True, wire)

    def flow(self, client, server):
        type(self).port += 1
        return Flow(client, server, self.port)


class Together(Case):
    """Linux is machine a, the agent's node is b."""

    kernels = ("6.12", os.environ.get("SMC_VM_KERNEL", "7"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        native(cls.a)
        cls.agent = cls.b.start_agent({"roce": ROCE})

    def both(self, wanted):
        kind = "SYMMETRIC" if wanted else "SINGLE"
        return netsmc.types(self.a) == [g["type"] for g in self.agent.smcr_groups()] == [kind]

    def more(self):
        def moved():
            found = [c for c in self.agent.connections(self.port) if c["path"] == "smcr"]
            return sum(min(c["bytes_sent"], c["bytes_received"]) for c in found)

        before = moved()
        wait_for("more bytes", lambda: moved() > before + 100_000, 60)

    def survive(self, client, server, cut):
        """Pulls the cable of the connection's link, at `cut`. Only once for each link group: when the link is up again,
        Linux may refuse writes over it to the RKey that it has told (remote access error)."""
        wait_for("two links", lambda: self.both(True), TIMEOUT)
        flow = self.flow(client, server)
        self.more()
        (connection,) = self.agent.connections(self.port)
        wire = wire_of(connection["smcr"]["device"])
        cut.set_link(False, wire)
        self.more()
        wait_for("one link", lambda: self.both(False), TIMEOUT)
        print("nothing for {} and {} ms".format(*flow.end()), end=" ", flush=True)
        cut.set_link(True, wire)
        try:
            wait_for("two links again", lambda: self.both(True), TIMEOUT)
        except Timeout:  # seen once in dozens of runs: Linux no longer answers ADD LINK
            print("and no second link again", end=" ", flush=True)

    def first_contact(self, client, server):
        type(self).port += 1
        echo = server[0].start_server([*server[1], "serve", self.port, 1], f"first{self.port}.log")
        done = client[0].run([*client[1], "client", server[0].ip4, self.port, 100_000])
        self.assertEqual((done.stdout, echo.wait()), ("100000 bytes\n", 0))
        self.assertEqual(self.agent.ended(self.port)[0]["path"], "smcr")

    def forget(self):
        """Each role begins without link groups of the other role."""
        self.assertEqual(self.agent.stop(), 0, self.agent.log()[-2000:])
        wait_for("Linux to have seen it", lambda: not netsmc.types(self.a), 60)
        type(self).agent = self.b.start_agent({"roce": ROCE}, f"agent{self.port}")

    def test_1_the_agent_is_the_server(self):
        kernel, agent = (self.a, NATIVE), (self.b, TCP)
        self.first_contact(kernel, agent)
        self.survive(kernel, agent, self.b)

    def test_2_linux_is_the_server(self):
        kernel, agent = (self.a, NATIVE), (self.b, TCP)
        self.forget()
        self.first_contact(agent, kernel)
        self.survive(agent, kernel, self.a)


class Alone(Case):
    """The kernel's own net/smc at both ends, for comparison: no agent takes part."""

    kernels = ("6.12", "6.12")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for machine in (cls.a, cls.b):
            native(machine)

    def test_how_long_it_takes(self):
        sides = (self.a, NATIVE), (self.b, NATIVE)
        echo = self.b.start_server([*NATIVE, "serve", 7399, 1], "first.log")
        self.assertEqual(self.a.run([*NATIVE, "client", self.b.ip4, 7399, 100_000]).stdout, "100000 bytes\n")
        self.assertEqual(echo.wait(), 0)
        wait_for("two links", lambda: netsmc.types(self.a) == netsmc.types(self.b) == ["SYMMETRIC"], TIMEOUT)
        flow = self.flow(*sides)
        self.a.sh("sleep 1")
        (device,) = netsmc.busy_devices(self.b)
        self.b.set_link(False, wire_of(device))
        self.a.sh("sleep 5")
        try:
            print("nothing for {} and {} ms".format(*flow.end()), end=" ", flush=True)
        except (Timeout, AssertionError) as error:
            print(f"it does not survive: {error}", end=" ", flush=True)


if __name__ == "__main__":
    unittest.main()
