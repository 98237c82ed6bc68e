# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Agents and kernel peers of other releases: an agent on Debian 12's own kernel, and its net/smc as the peer."""
import os
import unittest

from lab import captures, netsmc
from lab.basics import wait_for
from lab.machines import VmLab
from programs import NATIVE, TCP


class OldAgent(unittest.TestCase):
    """Linux 6.1 has no tcx: the wire programs are attached by clsact. The peer is net/smc of 6.12."""

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("agent61"))
        cls.linux, cls.node = cls.lab.machine("linux", "6.12"), cls.lab.machine("node", "6.1")
        cls.lab.boot()
        netsmc.make_ready(cls.linux)
        cls.agent = cls.node.start_agent()

    def test_1_smcr_in_either_role(self):
        sides = {"agent": (self.node, TCP), "kernel": (self.linux, NATIVE)}
        for port, client, server in ((7001, "agent", "kernel"), (7002, "kernel", "agent")):
            with self.subTest(client=client):
                machine, program = sides[server]
                echo = machine.start_server([*program, "serve", port, 2], f"serve{port}.log")
                for _ in range(2):  # first and subsequent contact
                    done = sides[client][0].run([*sides[client][1], "client", machine.ip4, port, 200_000])
                    self.assertEqual(done.stdout, "200000 bytes\n")
                self.assertEqual(echo.wait(), 0)
                self.assertEqual({c["path"] for c in self.agent.ended(port, 2)}, {"smcr"})
        self.assertEqual(netsmc.counters(self.linux)["fallbacks"], [])

    def test_2_the_agent_leaves_nothing_on_that_kernel(self):
        self.assertEqual(self.agent.stop(), 0, self.agent.log()[-2000:])
        # the kernel frees programs some time after their owner has ended
        wait_for(
            "the programs to be gone", lambda: "name smc_" not in self.node.run(["bpftool", "prog", "show"]).stdout
        )
        self.assertNotIn("smc_ingress", self.node.sh("tc filter show dev eth0 ingress || true"))
        self.assertEqual(self.node.sh("ls /sys/fs/bpf"), "")


class OldKernel(unittest.TestCase):
    """net/smc of 6.1 negotiates over rxe and then never sends a byte over it: CONFIRM LINK times out in either role,
    whoever the peer is, and a client is stuck in its own kernel afterwards (smc_wr_drain_cq). What must
    hold: the agent's application gets its bytes by TCP, and the agent has told the kernel and holds nothing."""

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("kernel61"))
        cls.linux, cls.node = cls.lab.machine("linux", "6.1"), cls.lab.machine(
            "node", os.environ.get("SMC_VM_KERNEL", "7")
        )
        cls.lab.boot()
        netsmc.make_ready(cls.linux)
        netsmc.ask(cls.linux, "pnet", "NET1", "eth0", "rxe0")
        cls.agent = cls.node.start_agent()

    def test_1_the_agent_connects(self):
        echo = self.linux.start_server([*NATIVE, "serve", 7001, 1], "serve7001.log")
        self.assertEqual(self.node.run([*TCP, "client", self.linux.ip4, 7001, 100_000]).stdout, "100000 bytes\n")
        connection = self.agent.ended(7001)[0]
        self.assertEqual((connection["path"], connection["reason"]["name"]), ("fallback", "timeout_confirm_link"))
        echo.send_signal(9)

    def test_2_the_kernel_connects(self):
        self.node.start_server([*TCP, "serve", 7002, 1], "serve7002.log")
        self.linux.start([*NATIVE, "client", self.node.ip4, 7002, 100_000], "client7002.log")
        wait_for(
            "the fallback",
            lambda: [
                c
                for c in self.agent.connections(7002)
                if c["path"] == "fallback" and c["reason"]["name"] == "timeout_confirm_link"
            ],
        )
        self.assertEqual(self.agent.smcr_groups(), [])
        history = [s for s in captures.histories(self.node.capture) if s.get("server", "").endswith(":7002")][-1]
        self.assertIn("DECLINE by the server: 0x02010000", history["answered"])
        self.linux.kill()


if __name__ == "__main__":
    unittest.main()
