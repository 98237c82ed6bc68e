# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""SMC-D between virtual machines that share memory: an ivshmem device of each, agents with no RoCE device."""
import os
import signal
import unittest

from lab.basics import wait_for
from lab.machines import VmLab
from programs import TCP

CONFIG = {"ism": {"provider": "ivshmem"}, "roce": {"enabled": False}}
SMALL = "SMC_VM_CORE" in os.environ


class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("ivshmem", area_mib=64))
        kernel = os.environ.get("SMC_VM_KERNEL", "7")
        cls.a, cls.b = cls.lab.machine("a", kernel), cls.lab.machine("b", kernel)
        cls.lab.boot()
        for machine in (cls.a, cls.b):
            machine.agent = machine.start_agent(CONFIG)

    def moved(self, port, count=200_000, times=1):
        """By the path that the agent of the client tells."""
        echo = self.b.start_server([*TCP, "serve", port, times], f"serve{port}.log")
        done = self.a.run([*TCP, "client", self.b.ip4, port, count, times], timeout=120)
        self.assertEqual(done.stdout, f"{count * times} bytes\n", done.stderr)
        self.assertEqual(echo.wait(), 0)
        return {c["path"] for c in self.a.agent.ended(port, times)}

    def test_1_payload_goes_by_the_shared_memory(self):
        (device,) = self.a.agent.ask("device")["smcd"]
        self.assertEqual(device["provider"], "ivshmem")
        self.assertEqual(self.moved(7001, 2_000_000 if SMALL else 20_000_000), {"smcd"})
        self.assertEqual(self.moved(7002, 100_000, 8), {"smcd"})
        (group,) = self.a.agent.ask("linkgroup", "--smcd")["smcd"]
        self.assertEqual(group["peer_gid"], self.b.agent.status()["ism"]["gid"])

    def test_2_an_agent_that_is_killed_comes_back(self):
        for i in range(2 if SMALL else 10):
            self.b.start([*TCP, "steps", "serve", 7100 + i, "recv:100000", "error"], f"steps{i}.log")
            client = self.a.start([*TCP, "steps", self.b.ip4, 7100 + i, "send:100000", "error"], f"client{i}.log")
            wait_for("the connection", lambda: self.a.agent.connections(7100 + i))
            self.b.agent.send_signal(signal.SIGKILL)
            client.wait(30)
            self.b.agent = self.b.start_agent(CONFIG, name=f"agent{i}")
            wait_for("SMC-D again", lambda: self.moved(7200 + i) == {"smcd"}, timeout=60)

    def test_3_a_machine_that_is_gone_leaves_its_memory(self):
        self.b.start([*TCP, "steps", "serve", 7300, "recv:1000", "error"], "steps-gone.log")
        client = self.a.start([*TCP, "steps", self.b.ip4, 7300, "send:1000", "error"], "client-gone.log")
        wait_for("the connection", lambda: [c for c in self.a.agent.connections(7300) if c["path"] == "smcd"])
        self.b.qemu.kill()
        self.b.qemu.wait()
        self.assertEqual(client.wait(60), 0)  # that no reset comes from there does not matter
        self.assertIn("ECONNRESET", client.text())
        # What it had is nobody's within seconds, and the agent here goes on.
        with open(self.lab.area, "rb") as file:

            def places():
                file.seek(4096)
                table = file.read(64 * 128)
                return sum(table[i * 128 : i * 128 + 8] != bytes(8) for i in range(64))

            wait_for("its place to be empty", lambda: places() == 1, timeout=90)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])


class Three(unittest.TestCase):
    def test_three_machines_in_one_area(self):
        lab = self.enterContext(VmLab("three", area_mib=64))
        kernel = os.environ.get("SMC_VM_KERNEL", "7")
        machines = [lab.machine(name, kernel) for name in "abc"]
        lab.boot()
        for machine in machines:
            machine.agent = machine.start_agent(CONFIG)
        pairs = [(machines[i], machines[j]) for i, j in ((0, 1), (1, 2), (2, 0))]
        size = 300_000 if SMALL else 10_000_000
        echoes = [server.start_server([*TCP, "serve", 7000, 1], "serve.log") for _, server in pairs]
        clients = [client.start([*TCP, "client", server.ip4, 7000, size], "client.log") for client, server in pairs]
        for running in (*clients, *echoes):
            self.assertEqual(running.wait(120), 0, running.text())
        for client, server in pairs:
            (ended,) = [c for c in client.agent.ended(7000, 2) if c["role"] == "client"]
            self.assertEqual((ended["path"], ended["bytes_received"]), ("smcd", size))
        for machine in machines:
            self.assertEqual(len(machine.agent.ask("linkgroup", "--smcd")["smcd"]), 2)


if __name__ == "__main__":
    unittest.main()
