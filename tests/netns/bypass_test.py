# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections between two pods of a node go past TCP, where both ends prove fit for it."""
import json
import unittest

from base import TwoPods
from lab.basics import wait_for

# Answers each message with itself. It never waits in a receive: poll() does that.
ECHO = """
import os, select, socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6 if ':' in sys.argv[1] else 2)
print('ready', flush=True)
while True:
    c, _ = s.accept()
    if os.fork():
        c.close(); continue
    c.setblocking(False)
    while True:
        select.select([c], [], [])
        d = c.recv(65536)
        if not d: break
        c.setblocking(True); c.sendall(d); c.setblocking(False)
    os._exit(0)
"""
# Sends what it is told to, as often, and says how often it came back.
CLIENT = """
import select, socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
print('stands', flush=True)
for line in sys.stdin:
    rounds, size = map(int, line.split())
    good = 0
    for i in range(rounds):
        sent, got = bytes((i * 7 + j) % 251 for j in range(size)), b''
        c.sendall(sent)
        while len(got) < size:
            d = c.recv(65536)
            if not d: break
            got += d
        good += got == sent
    print(good, flush=True)
"""
MEMBER = "SMC_MEMBER_MEMBER"


class Bypass(TwoPods):
    def begin(self, **more):
        self.start(**{"local": {"bypass": "force"}, **more})

    def members(self):
        """What is known of every socket that may be bypassed."""
        return [entry["formatted"]["value"] for entry in self.table(self.a, "../bypass/smc_bypass")]

    def table(self, node, name):
        if name.startswith("../bypass/"):
            return super().table(node, "../" + node.pins.rsplit("/", 1)[1] + "-bypass/" + name.split("/")[-1])
        return super().table(node, name)

    def exchange(self, client, rounds, size=64):
        self.tell(client, f"{rounds} {size}")
        self.assertEqual(self.hear(client), str(rounds))

    def pair(self, ip=None, port=5000):
        client = self.program(self.one, CLIENT, ip or self.two.ip4, port, says="stands")
        self.exchange(client, 40)
        return client

    def states(self):
        return [m["state"] for m in self.members()]

    def test_a_pair_is_bypassed(self):
        self.begin()
        self.program(self.two, ECHO, "0.0.0.0", 5000, says="ready")
        client = self.pair()
        wait_for("both to be members", lambda: self.states() == [MEMBER] * 2, 5)
        self.exchange(client, 500)
        print(self.a.agent.ctl('probe').stdout, self.a.agent.ctl('bypass').stdout, self.a.agent.ctl('ss').stdout)


if __name__ == "__main__":
    unittest.main()
