# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Pairs of sockets of two pods that may be bypassed, and their entries in the agent's tables."""
import glob
import json
import os
import re
import subprocess

from base import TwoPods
from lab.basics import Timeout, map_entries, wait_for

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pair_peer.py")
MEMBER, OUT = "SMC_MEMBER_MEMBER", "SMC_MEMBER_OUT"
PROOF = 40  # receives, and some more


class Pair:
    """The two ends of a connection; it has each method of pair_peer.End."""

    def __init__(self, test, ip=None, port=5000, listen="::"):
        self.test, self.port = test, port
        self.server = self.start(test.two, "serve", listen, port)
        test.assertEqual(test.hear(self.server), "ready")
        self.client = self.start(test.one, "connect", ip or test.two.ip4, port)
        for end in (self.client, self.server):
            test.assertEqual(test.hear(end), "stands")

    def start(self, pod, *arguments):
        command = ["/usr/bin/python3", "-B", PEER, *map(str, arguments)]
        process = pod.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.test.addCleanup(self.test.end_program, process)
        return process

    def tell(self, end, what, **arguments):
        self.test.tell(end, json.dumps([what, arguments]))

    def hear(self, end):
        return json.loads(self.test.hear(end))

    def ask(self, end, what, **arguments):
        self.tell(end, what, **arguments)
        return self.hear(end)

    def exchange(self, rounds, size=64):
        for _ in range(rounds):
            for sender, receiver in ((self.client, self.server), (self.server, self.client)):
                self.test.assertEqual(self.ask(sender, "send", count=size), size)
                self.test.assertEqual(self.ask(receiver, "receive", count=size), size)

    def both(self, count, **more):
        for number, end in enumerate((self.client, self.server)):
            self.tell(end, "both", out=count, come=count, seed=number, **more)
        return [self.hear(end) for end in (self.client, self.server)]


class Pairs(TwoPods):
    def begin(self, **more):
        self.start(**{"local": {"bypass": "force"}, **more})

    def pins(self):
        return sorted(glob.glob(f"{self.a.pins}-bypass*"))

    def members(self):
        """The entries of all sockets that may be bypassed, the client's first."""
        entries = map_entries(f"{self.a.pins}-bypass/smc_bypass")
        return sorted((entry["value"] for entry in entries), key=lambda m: -m["client"])

    def generation(self):
        (entry,) = map_entries(f"{self.a.pins}-bypass/smc_bypass_generation")
        return entry["value"]

    def pass_rounds(self, count=5):
        """Returns when the agent has looked at all of them so many times more."""
        rounds = lambda: self.a.agent.status()["bypass"]["rounds"]
        before = rounds()
        wait_for("rounds of the bypass", lambda: rounds() >= before + count, 30)

    def states(self):
        return [m["state"] for m in self.members()]

    def redirected(self):
        return [m["redirected"] for m in self.members()]

    def other_programs(self):
        """Programs of the pods run in other cgroups from now on, whose habits are not known."""
        for pod in (self.one, self.two):
            pod.apps += "-next"
            os.makedirs(pod.apps)
        self.know(self.one.apps, self.two.apps)

    def wait_until_members(self):
        try:
            wait_for("both to be members", lambda: self.states() == [MEMBER] * 2, 30)
        except Timeout as late:
            raise Timeout(f"{late}: {self.members()}") from late

    def promoted(self, ip=None, **more):
        pair = Pair(self, ip, **more)
        pair.exchange(PROOF)
        self.wait_until_members()
        return pair

    def end(self, pair):
        for end in (pair.client, pair.server):
            self.end_program(end)
        wait_for("their entries to go", lambda: not self.members(), 30)

    def sent_by_tcp(self, pair):
        """Bytes that TCP has sent for each end, the client first; those of retransmissions do not count."""
        ends = ((self.one, f"dport = :{pair.port}"), (self.two, f"sport = :{pair.port}"))
        lines = [pod.run(["ss", "-Htin", "state", "established", which]).stdout for pod, which in ends]
        count = lambda name, line: int(found[1]) if (found := re.search(rf"{name}:([0-9]+)", line)) else 0
        return [count("bytes_sent", line) - count("bytes_retrans", line) for line in lines]

    def assertExchangedPastTcp(self, pair, rounds):
        """Each byte goes past TCP, but for a message by TCP once in ten seconds, and each byte is counted once."""
        before = list(zip(self.redirected(), self.sent_by_tcp(pair)))
        pair.exchange(rounds)
        for was, past, by_tcp in zip(before, self.redirected(), self.sent_by_tcp(pair)):
            self.assertGreater(past, was[0])
            self.assertEqual(past - was[0] + by_tcp - was[1], rounds * 64)

    def wait_until_out(self):
        wait_for("both to be out", lambda: self.states() == [OUT] * 2, 30)

    def assertByTcp(self, pair):
        """The connection continues, and nothing goes past TCP."""
        before = self.redirected()
        pair.exchange(20)
        self.assertEqual(self.redirected(), before)
