# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""SMC-D over memory that nobody hands over: a file stands for the BAR, two agents of one kernel for two machines."""
import json
import os
import signal
import unittest

from base import TALK, TwoNodes
from lab.basics import AGENT, wait_for

MIB = 1024 * 1024

# A connection that says how it ends.
HOLD = """
import errno, socket, sys
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('up', flush=True)
try: print('end' if not c.recv(1) else 'data', flush=True)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
"""

# Sends so many bytes and is sent them back, each at its place.
TRANSFER = """
import hashlib, os, socket, sys, threading
c = socket.create_connection((sys.argv[1], 5000), timeout=60)
data = os.urandom(1 << 20) * int(sys.argv[2])
sender = threading.Thread(target=lambda: c.sendall(data)); sender.start()
got, total = hashlib.sha256(), 0
while total < len(data):
    part = c.recv(1 << 18)
    if not part: break
    got.update(part); total += len(part)
sender.join()
print('same' if got.digest() == hashlib.sha256(data).digest() else f'differs after {total}')
"""


class Ivshmem(TwoNodes):
    def setUp(self):
        super().setUp()
        self.area = os.path.join(self.lab.run, "area")
        self.make(64 * MIB)

    def make(self, size):
        with open(self.area, "wb") as file:
            file.truncate(size)

    def start(self, *nodes):
        for node in nodes or (self.a, self.b):
            area = {"provider": "ivshmem", "device": self.area, "chid": "0xff20"}
            node.start_agent(ism=area, fallback={"cache_s": 1})  # who declined is asked again soon

    def transfer(self, mib=8):
        done = self.a.python(TRANSFER, self.b.ip4, mib, timeout=120)
        self.assertEqual(done.stdout.strip(), "same", done.stderr)

    def test_another_agent_takes_the_place(self):
        self.start()
        self.serve()
        talker = self.program(self.a, TALK, self.b.ip4, says="up")
        for node in (self.a, self.b):
            done = node.agent.ctl("upgrade")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            wait_for("the next agent to serve", node.agent.prepared)
            self.tell(talker, "y" * 50_000)
            self.assertEqual(self.hear(talker), "y" * 50_000)
        self.transfer()
        self.assertPath(self.a, "smcd")
        self.end_program(talker)
        for node in (self.a, self.b):
            self.assertEqual(node.agent.process.wait(10), 0)
            os.kill(node.agent.status()["agent"]["pid"], signal.SIGTERM)

    def test_bytes_go_through_the_area(self):
        self.start()
        self.serve()
        self.transfer()
        self.assertPath(self.a, "smcd")
        self.assertPath(self.b, "smcd")
        (device,) = self.a.agent.ask("device")["smcd"]
        self.assertEqual((device["provider"], device["chid"]), ("ivshmem", "0xff20"))
        for _ in range(20):
            self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd", at_least=21)

    def test_a_peer_that_is_killed_is_forgotten_and_comes_back(self):
        self.start()
        self.serve()
        self.transfer(1)
        for _ in range(3):
            self.b.agent.send_signal(signal.SIGKILL)
            self.b.agent.process.wait(10)
            self.assertTrue(self.connect()["ok"])  # plain
            self.start(self.b)
            before = self.a.agent.totals().get(("smcd", "none"), 0)

            def again():
                self.assertTrue(self.connect()["ok"])
                return self.a.agent.totals().get(("smcd", "none"), 0) > before

            wait_for("SMC-D again", again, timeout=30)
            self.transfer(1)

    def test_connections_of_a_peer_that_stands_still_end(self):
        """As a machine does that is paused or gone: no reset comes from it."""
        self.start()
        self.serve()
        holder = self.program(self.a, HOLD, self.b.ip4, says="up")
        self.assertEqual([c["path"] for c in self.a.agent.connections()], ["smcd"])
        self.b.agent.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(self.hear(holder), "ECONNRESET")  # within seconds, and not TCP's minutes
            self.assertEqual(self.a.agent.connections(), [])
            self.assertEqual(self.a.agent.ask("linkgroup", "--smcd")["smcd"], [])
        finally:
            self.b.agent.send_signal(signal.SIGCONT)

        def again():
            before = self.a.agent.totals().get(("smcd", "none"), 0)
            self.assertTrue(self.connect()["ok"])
            return self.a.agent.totals().get(("smcd", "none"), 0) > before

        wait_for("SMC-D again", again, timeout=40)

    def test_an_area_that_is_too_small_or_of_another_version(self):
        self.make(65536)
        config = self.a.config(ism={"provider": "ivshmem", "device": self.area})
        self.assertIn("too few", self.refused(config))
        self.make(64 * MIB)
        with open(self.area, "r+b") as file:
            file.write((0x31444D4353494D53).to_bytes(8, "little") + (7).to_bytes(4, "little"))
            file.seek(32)
            file.write((1).to_bytes(8, "little"))
        self.assertIn("version 7, this is version 1", self.refused(config))
        missing = self.a.config(ism={"provider": "ivshmem"})
        self.assertIn("ivshmem device", self.refused(missing))

    def refused(self, config):
        """Why an agent with it does not start."""
        done = self.a.run([AGENT, "--config", self.a.write("refused.json", json.dumps(config))], check=False)
        self.assertEqual(done.returncode, 1)
        return done.stderr

    def test_an_area_that_was_left_dirty(self):
        self.start()
        self.serve()
        self.transfer(1)
        for node in (self.a, self.b):
            node.agent.send_signal(signal.SIGKILL)
            node.agent.process.wait(10)
        self.start()
        self.transfer(1)
        self.assertPath(self.a, "smcd")

    def test_a_full_area_is_plain_tcp(self):
        self.make(512 * 1024)  # a few blocks: no DMB fits
        self.start()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.totals().get(("smcd", "none"), 0), 0)


if __name__ == "__main__":
    unittest.main()
