# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""SMC-D between virtual machines that share memory: an ivshmem device of each, agents with no RoCE device."""
import json
import os
import signal
import struct
import unittest

from lab.basics import wait_for
from lab.machines import VmLab
from programs import TCP

from demo import REDIS_CHECK

CONFIG = {"ism": {"provider": "ivshmem"}, "roce": {"enabled": False}}
IVSHMEM = "0x1110"  # the device number
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
        """Moves bytes; the path that the client's agent reports."""
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

    def test_1_programs_of_others(self):
        """The programs of the demonstration."""
        self.b.start(
            ["redis-server", "--port", 7010, "--save", "", "--bind", "0.0.0.0", "--protected-mode", "no"], "redis.log"
        )
        self.b.start(["iperf3", "-s", "-p", 7011, "-1"], "iperf3.log")
        wait_for(
            "both to listen", lambda: all(f":{port:04X} " in self.b.sh("cat /proc/net/tcp*") for port in (7010, 7011))
        )
        check = REDIS_CHECK.replace("6379", "7010").replace("range(300)", f"range({20 if SMALL else 100})")
        self.assertEqual(self.a.run(["python3", "-c", check, self.b.ip4], timeout=200).stdout, "0\n")
        moved = json.loads(self.a.run(["iperf3", "-c", self.b.ip4, "-p", 7011, "-t", 2, "-J"], timeout=100).stdout)
        self.assertGreater(moved["end"]["sum_received"]["bytes"], 0)
        for port, count in ((7010, 1), (7011, 2)):
            self.assertEqual({c["path"] for c in self.a.agent.ended(port, count)}, {"smcd"})

    def test_2_an_agent_that_is_killed_comes_back(self):
        for i in range(2 if SMALL else 50):
            self.b.start([*TCP, "steps", "serve", 7100 + i, "recv:100000", "error"], f"steps{i}.log")
            client = self.a.start([*TCP, "steps", self.b.ip4, 7100 + i, "send:100000", "error"], f"client{i}.log")
            wait_for("the connection", lambda: self.a.agent.connections(7100 + i))
            self.b.agent.send_signal(signal.SIGKILL)
            client.wait(30)
            self.b.agent = self.b.start_agent(CONFIG, name=f"agent{i}")
            wait_for("SMC-D again", lambda: self.moved(7200 + i) == {"smcd"}, timeout=60)

    def blocks_taken(self):
        with open(self.lab.area, "rb") as file:
            superblock = file.read(4096)
            (blocks,) = struct.unpack_from("<I", superblock, 20)
            file.seek(4096 + 64 * 128)
            words = file.read(blocks * 8)
        return sum(words[i : i + 8] != bytes(8) for i in range(0, len(words), 8))

    def cut_while_it_sends(self, port):
        """Both ends send until there is an error, which the caller causes at b; a's program, once bytes move."""
        self.b.start([*TCP, "steps", "serve", port, "fill"], f"steps{port}.log")
        client = self.a.start([*TCP, "steps", self.b.ip4, port, "error"], f"client{port}.log")

        def moved():
            return [c for c in self.a.agent.connections(port) if c["path"] == "smcd" and c["bytes_received"] > 10**6]

        wait_for("bytes to move", moved)
        return client

    def test_3_a_machine_that_is_switched_off_and_on_finds_the_area_dirty(self):
        client = self.cut_while_it_sends(7300)
        self.lab.power_cut(self.b)
        self.assertEqual(client.wait(60), 0)  # it ends although no reset comes from b
        self.assertIn("ECONNRESET", client.text())
        self.b.agent = self.b.start_agent(CONFIG, name="agent-again")
        wait_for("SMC-D again", lambda: self.moved(7301) == {"smcd"}, timeout=60)

    def test_4_areas_of_another_version_or_size_are_left_alone(self):
        """Changes the machine's own BAR, and restores its contents."""
        for machine in (self.a, self.b):
            self.assertEqual(machine.agent.stop(), 0)
        with open(self.lab.area, "r+b") as file:
            for at, word, says in ((8, 9, "version 9, this is version 1"), (20, 7, "laid out for another size")):
                file.seek(at)
                before = file.read(4)
                file.seek(at)
                file.write(struct.pack("<I", word))
                file.flush()
                self.a.agent = self.a.start_agent(CONFIG, name=f"odd{at}")
                self.assertIn(says, self.a.agent.log())
                self.assertEqual(self.a.agent.ask("device")["smcd"], [])
                self.assertEqual(self.a.agent.stop(), 0)
                file.seek(at)
                file.write(before)
                file.flush()
        for machine in (self.a, self.b):
            machine.agent = machine.start_agent(CONFIG, name="good")
        wait_for("SMC-D again", lambda: self.moved(7401) == {"smcd"}, timeout=60)

    def test_5_a_machine_that_is_gone_leaves_its_memory(self):
        client = self.cut_while_it_sends(7500)
        self.b.kill()
        self.assertEqual(client.wait(60), 0)
        self.assertIn("ECONNRESET", client.text())
        # Its slot and blocks are free again within seconds, and the agent here continues.
        with open(self.lab.area, "rb") as file:

            def places():
                file.seek(4096)
                table = file.read(64 * 128)
                return sum(table[i * 128 : i * 128 + 8] != bytes(8) for i in range(64))

            wait_for("its place to be empty", lambda: places() == 1, timeout=90)
        wait_for("all blocks to be free", lambda: self.blocks_taken() == 0, timeout=90)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])


class NotTheSame(unittest.TestCase):
    def test_machines_that_share_nothing_use_roce(self):
        """The areas of the machines have one CHID, but the server does not find the client in its own area."""
        lab = self.enterContext(VmLab("unlike", area_mib=64, areas="own"))
        kernel = os.environ.get("SMC_VM_KERNEL", "7")
        a, b = lab.machine("a", kernel), lab.machine("b", kernel)
        lab.boot()
        for machine in (a, b):
            machine.agent = machine.start_agent({"ism": {"provider": "ivshmem"}})
        echo = b.start_server([*TCP, "serve", 7000, 1], "serve.log")
        done = a.run([*TCP, "client", b.ip4, 7000, 200_000], timeout=120)
        self.assertEqual((done.stdout, echo.wait()), ("200000 bytes\n", 0), done.stderr)
        self.assertEqual([c["path"] for c in a.agent.ended(7000)], ["smcr"])


class Doorbells(unittest.TestCase):
    """The same with ivshmem-doorbell, behind an IOMMU in each machine, and vfio-pci."""

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("doorbells", area_mib=64, doorbells=True))
        kernel = os.environ.get("SMC_VM_KERNEL", "7")
        cls.a, cls.b = cls.lab.machine("a", kernel), cls.lab.machine("b", kernel)
        cls.lab.boot()
        for machine in (cls.a, cls.b):
            machine.modprobe("vfio-pci")
            machine.pci_driver(IVSHMEM, "vfio-pci")
            machine.agent = machine.start_agent(CONFIG)

    @staticmethod
    def interrupts(machine):
        counts = machine.sh("grep vfio-msix /proc/interrupts || true").split("\n")
        return sum(int(line.split()[1]) for line in counts if line)

    def wake_up(self, machine):
        (device,) = machine.agent.ask("device")["smcd"]
        return device["wake_up"]

    def wait_wake_up(self, how):
        for machine in (self.a, self.b):
            wait_for(f"{how} on {machine.name}", lambda: self.wake_up(machine) == how, timeout=60)

    def talk(self, port):
        """A connection with an exchange every second: more than ten times as long as both sides busy-poll."""
        echo = self.b.start_server([*TCP, "steps", "serve", port, *["recv:64", "send:64"] * 5], f"talk{port}.log")
        steps = ["send:64", "recv:64", "sleep:1"] * 5
        client = self.a.start([*TCP, "steps", self.b.ip4, port, *steps], f"talking{port}.log")
        return echo, client

    def assertTalked(self, port, echo, client):
        self.assertEqual((client.wait(60), echo.wait(60)), (0, 0), client.text() + echo.text())
        (ended,) = self.a.agent.ended(port)
        self.assertEqual((ended["path"], ended["bytes_received"]), ("smcd", 320))

    def test_1_who_sleeps_is_interrupted(self):
        self.wait_wake_up("interrupts")
        before = [self.interrupts(machine) for machine in (self.a, self.b)]
        self.assertTalked(7001, *self.talk(7001))
        for machine, count in zip((self.a, self.b), before):
            self.assertGreaterEqual(self.interrupts(machine), count + 5)
        size = 2_000_000 if SMALL else 20_000_000
        echo = self.b.start_server([*TCP, "serve", 7002, 1], "serve.log")
        done = self.a.run([*TCP, "client", self.b.ip4, 7002, size], timeout=120)
        self.assertEqual((done.stdout, echo.wait()), (f"{size} bytes\n", 0), done.stderr)

    def test_2_another_agent_takes_the_place(self):
        """The next agent uses the same device, and its mappings stay."""
        self.wait_wake_up("interrupts")
        echo, client = self.talk(7100)
        wait_for("the connection", lambda: self.a.agent.connections(7100))
        done = self.a.agent.ctl("upgrade")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        wait_for("the next agent to serve", self.a.agent.prepared)
        self.assertEqual((client.wait(60), echo.wait(60)), (0, 0), client.text() + echo.text())
        wait_for("the agent before to end", lambda: self.a.agent.process.poll() is not None)
        self.wait_wake_up("interrupts")
        self.assertTalked(7101, *self.talk(7101))

    def test_3_who_cannot_interrupt_makes_the_others_look(self):
        self.assertEqual(self.b.agent.stop(), 0)
        self.b.pci_driver(IVSHMEM, "")
        self.b.agent = self.b.start_agent(CONFIG, name="plain")
        self.wait_wake_up("looking")
        self.assertTalked(7200, *self.talk(7200))
        self.assertEqual(self.b.agent.stop(), 0)
        wait_for("nobody who cannot", lambda: self.wake_up(self.a) == "interrupts", timeout=60)


class Three(unittest.TestCase):
    def test_three_machines_in_one_area(self):
        lab = self.enterContext(VmLab("three", area_mib=64))
        machines = self.boot(lab)
        for machine in machines:
            machine.agent = machine.start_agent(CONFIG)
        self.all_talk(machines)

    def test_an_area_for_each_pair(self):
        """Two devices in each machine; each pair of machines shares memory that the third does not have."""
        lab = self.enterContext(VmLab("pairs", area_mib=64, areas="pairs"))
        machines = self.boot(lab)
        chids = {frozenset(pair): f"0xff2{n}" for n, pair in enumerate(("ab", "ac", "bc"))}
        for machine in machines:
            bars = machine.sh(f"grep -l {IVSHMEM} /sys/bus/pci/devices/*/device | sed 's/device$/resource2/'").split()
            areas = [
                {"provider": "ivshmem", "device": bar, "chid": chids[frozenset((machine.name, other))]}
                for bar, other in zip(bars, [name for name in "abc" if name != machine.name], strict=True)
            ]
            machine.agent = machine.start_agent({"ism": {**areas[0], "others": areas[1:]}, "roce": {"enabled": False}})
        self.all_talk(machines)
        for machine in machines:
            for device in machine.agent.ask("device")["smcd"]:
                self.assertEqual(device["groups"], 1, device)

    def boot(self, lab):
        kernel = os.environ.get("SMC_VM_KERNEL", "7")
        machines = [lab.machine(name, kernel) for name in "abc"]
        lab.boot()
        return machines

    def all_talk(self, machines):
        """Each machine is the client of one other machine and the server of the other one."""
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
