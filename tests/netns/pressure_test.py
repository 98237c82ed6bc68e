# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Pairs that go past TCP while there is little memory."""
import unittest

import bypass_pairs
import memory_test
from base import TwoPods
from lab.basics import wait_for

MEMBER = "SMC_MEMBER_MEMBER"


class Pressure(TwoPods):
    """Programs in a control group with little memory; one of them does not read."""

    members, states = bypass_pairs.Pairs.members, bypass_pairs.Pairs.states

    def setUp(self):
        self.group = None
        self.addCleanup(lambda: self.group and self.group.remove())  # after the laboratory's processes have ended
        super().setUp()
        self.group = memory_test.MemoryGroup(self.lab.tag)
        self.group.make(96 << 20)

    def pairs(self, count):
        self.start(local={"bypass": "force"})
        with self.group:
            pairs = [bypass_pairs.Pair(self, port=5000 + n) for n in range(count)]
        for pair in pairs:
            pair.exchange(bypass_pairs.PROOF)
        wait_for("all to be members", lambda: self.states() == [MEMBER] * 2 * count, 10)
        return pairs

    def assertAllArrives(self, pairs):
        taken = [pair.ask(pair.client, "stuff", most=64 << 20) for pair in pairs]
        for pair, count in zip(pairs, taken):
            self.assertIsInstance(count, int, "send() has failed")
            self.assertEqual(pair.ask(pair.server, "receive", count=count), count)
            pair.exchange(10)
        for end in (end for pair in pairs for end in (pair.client, pair.server)):
            self.assertIsNone(end.poll())

    def test_little_for_all(self):
        self.assertAllArrives(self.pairs(3))

    def test_next_to_nothing_for_sockets(self):
        if not self.group.v1:
            self.skipTest("only v1 has a limit for the memory of sockets alone")
        self.group.write("memory.kmem.tcp.limit_in_bytes", 64 << 10)
        self.assertAllArrives(self.pairs(1))


if __name__ == "__main__":
    unittest.main()
