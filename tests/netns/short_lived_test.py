# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections that end before they have earned the set-up of SMC are left to TCP, and now and then one is tried."""
import json
import struct
import unittest

from greeting import Greeting
from lab.basics import sh, wait_for

# A connection that lasts until it is told to end. (Bytes and messages: unit tests of is_short_lived().)
LONG = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as c:
    c.sendall(b'tokn'); c.recv(100); print('connected', flush=True); sys.stdin.readline()
print('ended', flush=True)
"""


class ShortLived(Greeting):
    def start(self, **short_lived):
        """Agents of both nodes, with a value of policy.short_lived for each."""
        for node in (self.a, self.b):
            node.start_agent(
                fallback={"budget_ms": 10000},
                times={"stale_ms": 10000, "standstill_ms": 10000},
                policy={"short_lived": short_lived[node.name]},
            )
        self.greeter()

    def smcd(self):
        return self.a.agent.totals().get(("smcd", "none"), 0)

    def connect_until(self, what, count=20, **spec):
        """Short-lived connections until it is so. On a machine that is very busy, some take too long for that."""

        def once():
            self.all_ok(count, 60, count=count, **spec)
            return what()

        wait_for("it to be so", once, 120)

    def is_left(self, node, decision):
        return lambda: node.agent.decisions()[decision] > 0

    def test_a_client_leaves_them_to_tcp(self):
        self.start(a=False, b=True)
        self.serve(port=5001)
        self.assertIn("no connections are left to TCP", self.a.agent.ctl("status").stdout)
        self.connect_until(self.is_left(self.a, "SMC_OUT_SHORT_LIVED"))
        self.assertGreaterEqual(self.smcd(), 16)
        self.assertIn("those of 1 servers or listeners are left to TCP", self.a.agent.ctl("status").stdout)
        self.assertIn("end too early to be worth SMC", self.explained(5000))
        self.assertEqual(self.a.agent.status()["short_lived"], 1)
        self.assertEqual(self.b.agent.decisions()["SMC_IN_SHORT_LIVED"], 0)
        # another server is asked, and what is left to TCP is seldom tried
        self.assertNotIn("too early", self.explained(5001))
        before = self.smcd()
        self.assertTrue(self.connect(port=5001)["ok"])
        self.assertEqual(self.smcd(), before + 1)
        scores = {e["key"]["server"]["port"]: e["value"]["score"] for e in self.table(self.a, "smc_short")}
        self.assertEqual(scores[5000], 16)
        self.connect_until(lambda: self.smcd() > before + 1, 100)
        self.assertLessEqual(self.smcd() - before - 1, self.a.agent.decisions()["SMC_OUT_SHORT_LIVED"] / 50)

    def test_a_server_leaves_them_to_tcp(self):
        self.start(a=True, b=False)
        self.connect_until(self.is_left(self.b, "SMC_IN_SHORT_LIVED"))
        self.assertIn("those of 1 servers or listeners are left to TCP", self.b.agent.ctl("status").stdout)
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_SHORT_LIVED"], 0)

    def try_next(self, node):
        """The next one is tried, as if it were the first one for more than a minute."""
        pinned = f"{node.pins}/smc_short"
        (entry,) = json.loads(sh("bpftool", "-j", "map", "dump", "pinned", pinned))
        never = [*struct.pack("=IIQ", 16, 0, 0)]
        sh("bpftool", "map", "update", "pinned", pinned, "key", *entry["key"], "value", *map(str, never))

    def longer_ones_are_smc_again(self, node):
        before = self.smcd()
        client = self.program(self.a, LONG, self.b.ip4, says="connected")
        self.assertEqual(self.smcd(), before + 1)
        wait_for("it to be counted before it ends", lambda: self.table(node, "smc_short")[0]["value"]["score"] < 16)
        self.assertIn("no connections are left to TCP", node.agent.ctl("status").stdout)
        self.still_smcd(1)
        self.tell(client, "end")
        self.assertEqual(self.hear(client), "ended")

    def test_longer_ones_are_smc_again(self):
        self.start(a=False, b=True)
        self.connect_until(self.is_left(self.a, "SMC_OUT_SHORT_LIVED"))
        self.try_next(self.a)
        self.longer_ones_are_smc_again(self.a)

    def test_longer_ones_to_a_server_are_smc_again(self):
        """The client does not know any more that the server speaks SMC, so it sends a request before."""
        self.longer_ones_to_a_server()

    def test_longer_ones_to_a_server_on_a_bridge_are_smc_again(self):
        """The SYN of a trial passes two devices, and is one trial."""
        self.use_bridge(self.b)
        self.longer_ones_to_a_server()

    def longer_ones_to_a_server(self):
        self.start(a=True, b=False)
        self.connect_until(self.is_left(self.b, "SMC_IN_SHORT_LIVED"))

        def unknown():
            self.all_ok(1, 60, count=1)
            return not self.table(self.a, "smc_servers")

        wait_for("the client to forget the server", unknown)
        self.try_next(self.b)
        self.longer_ones_are_smc_again(self.b)

    def explained(self, port):
        return self.a.agent.ctl("explain", f"{self.b.ip4}:{port}").stdout


if __name__ == "__main__":
    unittest.main()
