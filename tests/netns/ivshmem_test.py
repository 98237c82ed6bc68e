# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""SMC-D over ivshmem: a file stands for the BAR, and two agents of one kernel for two machines."""
import json
import os
import signal
import struct
import subprocess
import time
import unittest

from base import CHURN, TALK, TwoNodes
from lab.basics import AGENT, wait_for

MIB = 1024 * 1024
ROUNDS = int(os.environ.get("SMC_ROUNDS", "5"))
HOSTILE_SECONDS = int(os.environ.get("SMC_HOSTILE_SECONDS", "8"))

# A connection that prints how it ended.
HOLD = """
import errno, socket, sys
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('up', flush=True)
try: print('end' if not c.recv(1) else 'data', flush=True)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
"""

# Sends so many bytes, and checks that they come back in order.
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


# Writes random words at random places of a file for so many seconds, mostly in the control structures.
WRITER = """
import mmap, os, random, struct, sys, time
with open(sys.argv[1], 'r+b') as f: m = mmap.mmap(f.fileno(), 0)
print('up', flush=True)
ends, r = time.monotonic() + float(sys.argv[2]), random.Random(7)
while time.monotonic() < ends:
    for _ in range(2000):
        size = len(m) if r.random() < .5 else 1 << 17
        at = r.randrange(size // 8) * 8
        old, = struct.unpack_from('<Q', m, at)
        word = r.choice((r.getrandbits(64), r.getrandbits(16), 0, old + 1, old ^ 1 << r.randrange(64)))
        struct.pack_into('<Q', m, at, word & (1 << 64) - 1)
    time.sleep(0.001)
print('done', flush=True)
"""

# Sends 100 kB there and back, and prints the result.
SHORT = """
import os, socket, sys
mine = os.urandom(100_000); got = b''
try:
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); c.settimeout(20)
    c.sendall(mine); c.shutdown(1)
    while d := c.recv(65536): got += d
    print('same' if got == mine else 'differs')
except socket.timeout: print('hangs')
except OSError: print('error')
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
            # A server that declined is asked again soon, and timeouts are long enough to accelerate every connection.
            node.start_agent(ism=area, fallback={"cache_s": 1, "budget_ms": 10000})

    def transfer(self, mib=8, ip=None):
        done = self.a.python(TRANSFER, ip or self.b.ip4, mib, timeout=120)
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

            wait_for("SMC-D again", again)
            self.transfer(1)

    def test_the_fabric_that_reaches_the_peer_is_taken(self):
        """Each agent is on two fabrics. `local` fabrics of two kernels have one CHID, but do not reach each other."""
        for node in (self.a, self.b):
            area = {"provider": "ivshmem", "device": self.area, "chid": "0xff20"}
            node.start_agent(ism={"directory": f"{self.lab.run}/ism-{node.name}", "others": [area]})
        c = self.lab.node("c")
        self.lab.link(self.a, c)
        c.start_agent(ism={"directory": f"{self.lab.run}/ism-{self.a.name}"})  # of a's kernel, and without the area
        self.serve()
        self.serve(c)
        for peer, chid in ((self.b, "0xff20"), (c, "0xff00")):
            talker = self.program(self.a, TALK, peer.ip4, says="up")
            self.tell(talker, "y" * 50_000)
            self.assertEqual(self.hear(talker), "y" * 50_000)
            (running,) = [each for each in self.a.agent.connections() if each["path"] == "smcd"]
            self.assertEqual(running["smcd"]["chid"], chid)
            self.end_program(talker)
        devices = {each["chid"]: each for each in self.a.agent.ask("device")["smcd"]}
        self.assertEqual(
            {chid: (each["provider"], each["groups"]) for chid, each in devices.items()},
            {"0xff00": ("local", 1), "0xff20": ("ivshmem", 1)},
        )
        self.assertNotEqual(devices["0xff00"]["gid"], devices["0xff20"]["gid"])
        self.b.agent.send_signal(signal.SIGKILL)

        def lost():
            return {each["chid"]: each["groups"] for each in self.a.agent.ask("device")["smcd"]}

        wait_for("the peer to be missed", lambda: lost() == {"0xff00": 1, "0xff20": 0}, timeout=30)

    def test_an_area_for_each_neighbour_and_one_that_is_spoilt(self):
        """A peer that spoils an area harms only the two that share it."""
        c = self.lab.node("c")
        self.lab.link(self.a, c)
        areas = {name: os.path.join(self.lab.run, f"area-{name}") for name in ("b", "c", "spoilt")}
        for path in areas.values():
            with open(path, "wb") as file:
                file.truncate(64 * MIB)
        with open(areas["spoilt"], "r+b") as file:
            file.write(b"something else")
        chids = {"b": "0xff21", "c": "0xff22", "spoilt": "0xff20"}
        fabric = lambda name: {"provider": "ivshmem", "device": areas[name], "chid": chids[name]}
        self.a.start_agent(ism={**fabric("spoilt"), "others": [fabric("b"), fabric("c")]})
        self.assertIn("the fabric with CHID 0xff20 is not used", self.a.agent_log())
        self.assertEqual([each["chid"] for each in self.a.agent.ask("device")["smcd"]], ["0xff21", "0xff22"])
        for node in (self.b, c):
            node.start_agent(ism=fabric(node.name))
            self.serve(node)
            talker = self.program(self.a, TALK, node.ip4, says="up")
            self.tell(talker, "y" * 50_000)
            self.assertEqual(self.hear(talker), "y" * 50_000)
            (running,) = [each for each in self.a.agent.connections() if each["path"] == "smcd"]
            self.assertEqual(running["smcd"]["chid"], chids[node.name])
            self.end_program(talker)

    def test_three_in_one_area(self):
        third = self.lab.node("c")
        self.lab.link(third, self.b)  # from now on b's address is its address on this link
        far, near = self.b.ip4, "10.77.0.2"
        self.start(self.a, self.b, third)
        self.serve()
        mib = 16
        clients = [
            node.popen(["/usr/bin/python3", "-c", TRANSFER, ip, mib], stdout=subprocess.PIPE, text=True)
            for node, ip in ((self.a, near), (third, far)) * 3
        ]
        self.assertEqual([client.communicate(timeout=120)[0].strip() for client in clients], ["same"] * 6)
        for node in (self.a, third):
            self.assertPath(node, "smcd", at_least=3)
        self.assertEqual(len(self.b.agent.ask("linkgroup", "--smcd")["smcd"]), 2)
        third.agent.send_signal(signal.SIGKILL)
        third.agent.process.wait(10)
        self.transfer(1, near)
        self.assertPath(self.a, "smcd", at_least=4)

    def test_killed_again_and_again_under_load(self):
        self.start()
        self.serve()
        churns = [self.program(self.a, CHURN, self.b.ip4, says="up") for _ in range(2)]
        for _ in range(ROUNDS):
            self.b.agent.stop(signal.SIGKILL)
            self.start(self.b)
        wait_for("SMC-D again", lambda: self.a.agent.connections(5000) or self.connect() and None, timeout=40)
        for churn in churns:
            self.tell(churn, "stop")
            right, *wrong = self.hear(churn).split(" ", 1)
            self.assertGreater(int(right), 0)
            self.assertNotIn("bytes", " ".join(wrong))  # a kill is a reset, never an end or wrong bytes
        wait_for("nobody's blocks to be free", lambda: self.blocks_taken() == 0, timeout=60)
        self.transfer()

    def blocks_taken(self):
        with open(self.area, "rb") as file:
            superblock = file.read(4096)
            (blocks,) = struct.unpack_from("<I", superblock, 20)
            file.seek(4096 + 64 * 128)
            words = file.read(blocks * 8)
        return sum(words[i : i + 8] != bytes(8) for i in range(0, len(words), 8))

    def test_who_writes_everywhere(self):
        """A peer may write anything. Then only connections over its own area may be wrong."""
        third, other = self.lab.node("c"), os.path.join(self.lab.run, "other")
        self.lab.link(self.a, third)
        with open(other, "wb") as file:
            file.truncate(64 * MIB)
        fabric = lambda path, chid: {"provider": "ivshmem", "device": path, "chid": chid}
        both = {**fabric(self.area, "0xff20"), "others": [fabric(other, "0xff21")]}
        soon = {"cache_s": 1, "budget_ms": 5000}
        self.a.start_agent(ism=both, fallback=soon)
        self.start(self.b)
        third.start_agent(ism=fabric(other, "0xff21"))
        self.serve()
        self.serve(third, port=5001)
        self.transfer(1)
        with open(self.area, "rb") as file:
            superblock = file.read(64)
        writer = self.program(self.a, WRITER, self.area, HOSTILE_SECONDS, says="up")
        ends, short = time.monotonic() + HOSTILE_SECONDS, 0
        pids = [node.agent.status()["agent"]["pid"] for node in (self.a, self.b)]
        while time.monotonic() < ends:
            done = self.a.python(SHORT, self.b.ip4, 5000, timeout=40)
            self.assertIn(done.stdout.strip(), ("same", "differs", "error"), done.stderr)
            for _ in range(3):
                done = self.a.python(SHORT, third.ip4, 5001, timeout=40)
                self.assertEqual(done.stdout.strip(), "same", done.stderr)
                short += 1
            for node in (self.a, self.b):
                self.assertTrue(node.agent.status())
        self.assertEqual(self.hear(writer), "done")
        self.assertEqual([node.agent.status()["agent"]["pid"] for node in (self.a, self.b)], pids)
        self.assertPath(third, "smcd", at_least=short)  # the area that the other two share is not affected
        for node in (self.a, self.b):
            self.assertEqual(node.agent.stop(), 0, node.agent.log()[-2000:])
        # The next agents find the area as it was left: they start, and use it in time if it is still an area.
        self.a.start_agent(ism=both, fallback=soon)
        self.start(self.b)
        self.transfer(1)
        for node in (self.a, self.b):
            self.assertEqual(node.agent.stop(), 0, node.agent.log()[-2000:])
        with open(self.area, "r+b") as file:
            file.write(superblock)
        self.a.start_agent(ism=both, fallback=soon)
        self.start(self.b)

        def again():
            before = self.a.agent.totals().get(("smcd", "none"), 0)
            self.transfer(1)
            return self.a.agent.totals().get(("smcd", "none"), 0) > before

        wait_for("SMC-D by the area that was spoilt", again)

    def test_garbage_ends_the_connection_that_it_concerns(self):
        self.start()
        self.serve()
        talkers = [self.program(self.a, TALK, self.b.ip4, says="up") for _ in range(2)]
        (one, two) = self.a.agent.connections()
        self.assertEqual((one["path"], two["path"]), ("smcd", "smcd"))
        with open(self.area, "r+b") as file:
            superblock = file.read(4096)
            (data,) = struct.unpack_from("<Q", superblock, 24)
            block = int(two["smcd"]["token"], 16) & 0xFFFF
            file.seek(data + block * 65536 + 4096 + 8)  # where its peer writes its producer cursor
            file.write(b"\xff" * 8)
        answers = []
        for talker in talkers:  # what is written without a doorbell is found when the connection is used
            self.tell(talker, "y" * 50_000)
            answers.append(self.hear(talker))
        wait_for("it to end", lambda: [c["id"] for c in self.a.agent.connections()] == [one["id"]])
        self.assertEqual(sorted(answer[:5] for answer in answers), ["error", "yyyyy"])
        self.assertIn("y" * 50_000, answers)

    def test_connections_of_a_peer_that_stands_still_end(self):
        """The peer behaves like a machine that is paused or gone: it sends no reset."""
        self.start()
        self.serve()
        holder = self.program(self.a, HOLD, self.b.ip4, says="up")
        self.assertEqual([c["path"] for c in self.a.agent.connections()], ["smcd"])
        self.b.agent.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(self.hear(holder), "ECONNRESET")  # within seconds, not after minutes as with TCP
            self.assertEqual(self.a.agent.connections(), [])
            self.assertEqual(self.a.agent.ask("linkgroup", "--smcd")["smcd"], [])
        finally:
            self.b.agent.send_signal(signal.SIGCONT)

        def again():
            before = self.a.agent.totals().get(("smcd", "none"), 0)
            self.assertTrue(self.connect()["ok"])
            return self.a.agent.totals().get(("smcd", "none"), 0) > before

        wait_for("SMC-D again", again, timeout=40)

    def test_an_area_of_another_version_is_left_alone(self):
        """An agent of another release may use it, so the agent starts without it."""
        head = (0x31444D4353494D53).to_bytes(8, "little") + (7).to_bytes(4, "little")
        with open(self.area, "r+b") as file:
            file.write(head)
            file.seek(32)
            file.write((1).to_bytes(8, "little"))
        self.start()
        self.assertIn("version 7, this is version 1", self.a.agent_log())
        self.assertEqual(self.a.agent.ask("device")["smcd"], [])
        self.assertIn("no fabric", self.a.agent.ctl("status").stdout)
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertEqual({path for path, _ in self.a.agent.totals()}, {"fallback"})
        with open(self.area, "rb") as file:
            self.assertEqual(file.read(12), head)

    def test_a_device_that_cannot_be_one_is_a_mistake(self):
        self.make(65536)
        config = self.a.config(ism={"provider": "ivshmem", "device": self.area})
        self.assertIn("too few", self.refused(config))
        missing = self.a.config(ism={"provider": "ivshmem"})
        self.assertIn("ivshmem device", self.refused(missing))

    def refused(self, config):
        """The reason why an agent with this configuration does not start."""
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
        self.assertGreater(self.a.agent.decisions()["SMC_OUT_ASKED"], 0)
        self.assertEqual({path for path, _ in self.a.agent.totals()}, {"fallback"})


if __name__ == "__main__":
    unittest.main()
