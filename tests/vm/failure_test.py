# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Failures under SMC-R connections, and their effect on applications, other connections and the agents. Agents on both
sides, on a kernel as our users have it. Cases run in the order of their names: each but the last leaves the machines
intact."""
import os
import time
import unittest

from lab.basics import wait_for
from lab.machines import VmLab
from programs import TCP

RESET = "ECONNRESET"


class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("failure"))
        cls.a, cls.b = (cls.lab.machine(name, os.environ.get("SMC_VM_KERNEL", "7")) for name in "ab")
        cls.lab.boot()
        roce = {"roce": {"test_link_s": 3}}
        cls.agent_a, cls.agent_b = cls.a.start_agent(roce), cls.b.start_agent(roce)
        cls.port = 7100

    def setUp(self):
        type(self).port += 1

    def start(self, server_steps, client_steps):
        """Starts a connection that becomes SMC-R; its two programs."""
        server = self.b.start_server([*TCP, "steps", "serve", self.port, *server_steps], f"server{self.port}.log")
        client = self.a.start([*TCP, "steps", self.b.ip4, self.port, *client_steps], f"client{self.port}.log")
        for agent in (self.agent_a, self.agent_b):
            wait_for("an SMC-R connection", lambda: [c for c in agent.connections(self.port) if c["path"] == "smcr"])
        return server, client

    def smcr_again(self):
        """Waits until new connections are SMC-R, and nothing of the old ones is left."""

        def one():
            type(self).port += 1
            server = self.b.start_server([*TCP, "serve", self.port, 1], f"again{self.port}.log")
            self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 100000]).stdout, "100000 bytes\n")
            self.assertEqual(server.wait(), 0)
            return [c for c in self.agent_a.connections(self.port, ended=True) if c["path"] == "smcr"]

        wait_for("SMC-R again", one)
        for agent in (self.agent_a, self.agent_b):
            wait_for(
                "one link group without connections", lambda: [g["connections"] for g in agent.smcr_groups()] == [0]
            )
            # One queue pair; four memory regions: RMB, send buffer, two of the link. Nothing of earlier groups.
            for kind, count in (("qp", 1), ("mr", 4), ("pd", 1)):
                wait_for(
                    f"{count} {kind} to be left",
                    lambda: agent.host.run(["rdma", "resource", "show", kind]).stdout.count("comm smc-agent") == count,
                )

    def reasons(self, agent, port):
        return {c["reason"]["name"] for c in agent.ended(port)}

    def test_1_the_cable_is_out_for_two_seconds(self):
        """The queue pair retries for longer than that. But rxe fails a request that it must send while its own port is
        down, and then the link is gone: either every byte arrives, or both sides get an error."""
        size = 25_000_000
        server = self.b.start_server([*TCP, "duplex", "serve", self.port, size], "cut-server.log")
        client = self.a.start([*TCP, "duplex", self.b.ip4, self.port, size], "cut-client.log")
        wait_for("data", lambda: [c for c in self.agent_a.connections(self.port) if c["bytes_sent"] > 1_000_000])
        began = time.monotonic()
        self.a.set_link(False)
        try:
            wait_for("the port to be down", lambda: self.agent_a.smcr_devices()[0]["state"] == "INACTIVE")
            time.sleep(max(0.0, began + 2 - time.monotonic()))
        finally:
            self.a.set_link(True)
        wait_for("the port to be up", lambda: self.agent_a.smcr_devices()[0]["state"] == "ACTIVE")
        self.assertIn("roce: device rxe0: port error", self.agent_a.log())
        codes = (client.wait(60), server.wait(60))
        if self.reasons(self.agent_a, self.port) == {"none"}:
            self.assertEqual(codes, (0, 0), client.text() + server.text())
            for program in (client, server):
                self.assertIn(f"{size} bytes", program.text())
        else:
            for program in (client, server):
                self.assertIn("ConnectionResetError", program.text())
        self.smcr_again()

    @unittest.skipIf(os.environ.get("SMC_VM_CORE"), "takes longer than the core of the tests may")
    def test_2_the_cable_is_out_for_a_minute(self):
        busy = self.start(["error"], ["fill"])
        type(self).port += 1
        idle = self.start(["error"], ["error"])
        began = time.monotonic()
        self.a.set_link(False)
        try:
            for program in (*busy, *idle):
                self.assertEqual(program.wait(50), 0)
                self.assertIn(RESET, program.text())
            wait_for("the groups to go", lambda: not self.agent_a.smcr_groups())
            time.sleep(max(0.0, 60 - (time.monotonic() - began)))
        finally:
            self.a.set_link(True)
        # C3.
        self.assertEqual(self.reasons(self.agent_a, self.port), {"link_down"})
        lines = [line for line in self.agent_a.log().splitlines() if " ended, 2 connections are reset" in line]
        self.assertEqual(len(lines), 1, self.agent_a.log()[-3000:])
        self.smcr_again()

    def test_3_the_rdma_device_is_deleted_under_load(self):
        busy = self.start(["error"], ["fill"])
        self.b.run(["rdma", "link", "delete", "rxe0"], timeout=30)
        for program in busy:
            self.assertEqual(program.wait(30), 0)
            self.assertIn(RESET, program.text())
        wait_for("the device to be let go of", lambda: self.agent_b.smcr_devices() == [])
        wait_for("its memory", lambda: self.agent_b.status()["roce"]["registered_bytes"] == 0)
        # without a device it is TCP
        type(self).port += 1
        server = self.b.start_server([*TCP, "serve", self.port, 1], "plain.log")
        self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 100000]).stdout, "100000 bytes\n")
        self.assertEqual(server.wait(), 0)
        self.assertGreaterEqual(self.agent_b.decisions()["SMC_IN_NO_DEVICE"], 1)
        self.b.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"])
        self.smcr_again()

    def test_4_the_agent_is_killed(self):
        busy = self.start(["error"], ["fill"])
        self.agent_b.process.send_signal(9)
        for program in busy:
            self.assertEqual(program.wait(30), 0)
            self.assertIn(RESET, program.text())
        type(self).agent_b = self.b.start_agent({"roce": {"test_link_s": 3}}, "agent2")
        self.smcr_again()

    def test_5_the_peer_machine_dies(self):
        server, client = self.start(["error"], ["fill"])
        self.b.kill()
        self.assertEqual(client.wait(60), 0)
        self.assertIn(RESET, client.text())
        wait_for("everything to be given back", lambda: self.agent_a.status()["roce"]["registered_bytes"] == 0)
        self.assertEqual(self.agent_a.smcr_groups(), [])
        self.assertEqual(self.agent_a.stop(), 0, self.agent_a.log()[-2000:])


if __name__ == "__main__":
    unittest.main()
