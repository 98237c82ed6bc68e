# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The kernel's own net/smc on both sides: checks the laboratory itself, and smcctl with its traffic.

This is also the reference that agents are measured against: the same programs, the same counters. 6.12 on both sides:
net/smc of 6.1 negotiates over rxe but never sends a byte over it (CONFIRM LINK times out, in either role)."""
import collections
import re
import unittest

from lab import netsmc, tshark
from lab.basics import wait_for
from lab.captures import decode
from lab.machines import VmLab
from programs import NATIVE

UEID = "SMC-AGENT.TEST"
PORT = 5000
SIZES = [1, 100_000, 300_000]


class KernelPeers(unittest.TestCase):
    log = 0

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("kernel"))
        cls.a, cls.b = cls.lab.machine("a", "6.12"), cls.lab.machine("b", "6.12")
        cls.lab.boot()
        for machine in (cls.a, cls.b):
            machine.modprobe("smc", "smc_diag")
            netsmc.ask(machine, "pnet", "NET1", "eth0", "rxe0")

    def exchange(self, client, server, sizes):
        type(self).log += 1
        echo = server.start_server([*NATIVE, "serve", PORT, len(sizes)], f"serve{self.log}.log")
        for size in sizes:
            self.assertEqual(client.run([*NATIVE, "client", server.ip4, PORT, size]).stdout, f"{size} bytes\n")
        self.assertEqual(echo.wait(), 0, echo.text())

    def test_1_without_a_common_eid_it_is_tcp(self):
        netsmc.ask(self.a, "ueid", "ONE")
        netsmc.ask(self.b, "ueid", "OTHER")
        self.exchange(self.a, self.b, [1000])
        history = decode("--summary", self.a.capture)[0]
        self.assertIn("DECLINE by the server", history["answered"])
        self.assertEqual(history["carried"], "by TCP")

    def test_2_both_roles_and_every_byte(self):
        for machine in (self.a, self.b):
            netsmc.ask(machine, "ueid", UEID)
        before = len([o for o in decode("--summary", self.a.capture) if o["kind"] == "connection"])
        self.exchange(self.a, self.b, SIZES)
        self.exchange(self.b, self.a, SIZES)
        shown = netsmc.ask(self.a, "show")
        self.assertGreaterEqual(len(shown["links"]), 2, shown)  # one link group for each role

        def told():
            """The summary, once the last close is in the capture."""
            summary = decode("--summary", self.a.capture)
            histories = [o for o in summary if o["kind"] == "connection"][before:]
            return (
                (summary, histories) if histories and all(s["ended"] == "closed by both" for s in histories) else None
            )

        summary, histories = wait_for("the connections to be closed by both", told)
        self.assertEqual(len(histories), 2 * len(SIZES))
        for history, size in zip(histories, SIZES + SIZES):
            self.assertIn("confirmed", history["answered"])
            self.assertIn(f"EID {UEID}", history["answered"])
            self.assertEqual((history["bytes_client_to_server"], history["bytes_server_to_client"]), (size, size))
        self.assertIn("first contact", histories[0]["answered"])
        self.assertIn("subsequent contact", histories[1]["answered"])
        groups = [o for o in summary if o["kind"] == "link_group"]
        self.assertEqual([len(g["links"]) for g in groups], [1, 1])
        self.assertEqual({link["state"] for g in groups for link in g["links"]}, {"confirmed"})

    def test_2b_an_agent_beside_tells_what_the_kernel_has_counted(self):
        agent = self.a.start_agent()
        text = self.a.run(["curl", "-sSf", "http://127.0.0.1:7609/metrics"]).stdout
        counted = dict(re.findall(r"^(smc_agent_kernel_\S+) (\S+)$", text, re.M))
        stats = netsmc.counters(self.a)
        self.assertGreater(stats["client"], 0)
        for role in ("client", "server"):
            name = f'smc_agent_kernel_connections_total{{mode="smcr",version="2",role="{role}"}}'
            self.assertEqual(float(counted[name]), stats[role])
        name = 'smc_agent_kernel_sent_bytes_total{mode="smcr"}'
        self.assertGreaterEqual(float(counted[name]), 2 * sum(SIZES))
        self.assertEqual(agent.stop(), 0)

    def test_3_every_message_is_read_and_tshark_agrees(self):
        messages = decode(self.a.capture)
        self.assertEqual([m for m in messages if "fault" in m], [])
        kinds = collections.Counter(m["type"] for m in messages)
        for kind in ("PROPOSAL", "ACCEPT", "CONFIRM", "DECLINE", "CONFIRM LINK", "ADD LINK", "CONFIRM RKEY", "CDC"):
            self.assertGreater(kinds[kind], 0, kinds)
        theirs, compared = tshark.dissect(self.a.capture), 0
        for message in messages:
            if message["layer"] != "LLC" and message["frame"] in theirs:
                different, fields = tshark.compare(message, theirs[message["frame"]])
                self.assertEqual(different, [])
                compared += fields
        self.assertGreater(compared, 1000)


if __name__ == "__main__":
    unittest.main()
