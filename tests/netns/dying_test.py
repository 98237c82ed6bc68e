# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Agents that die or hang, under load: clients are no worse off than with TCP, except for connections that break."""
import json
import os
import random
import signal
import sys
import time
import unittest

from greeting import CLIENTS, Greeting
from lab.basics import sh, wait_for

ROUNDS = int(os.environ.get("SMC_ROUNDS", 10))  # how many agents die
SEED = int(os.environ.get("SMC_SEED") or random.randrange(1 << 31))  # decides which agents die, and when


class Dying(Greeting):
    def under_fire(self, within, fire, kills=0):
        """Clients connect while agents die and start: as good as plain TCP, except for connections that break."""
        threads = 8
        asked_again = {"fallback": {"cache_s": 1, "budget_ms": 1000}}
        ports = ["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"]  # TIME_WAITs of a minute
        self.a.run(ports, check=True)
        self.start_agents(**asked_again)
        greeter = self.greeter()
        spec = {"to": self.b.ip4, "threads": threads, "count": 100000, "told": True, "timeout": 8}
        clients = self.program(self.a, CLIENTS, json.dumps(spec))
        smcd = lambda: self.a.agent_log().count(" smcd client ")
        fire(asked_again)
        time.sleep(1)  # while the agents run undisturbed
        wait_for("enough connections by SMC", lambda: smcd() > 100, 60)
        seen = json.loads(clients.communicate(timeout=60)[0])
        for node in (self.a, self.b):
            wait_for("connections to end", lambda: not node.agent.connections(), 60)
        server = json.loads(greeter.communicate(timeout=60)[0])
        print(f"{self._testMethodName}: clients {seen}, by smcd {smcd()}, server {server}", file=sys.stderr)
        with self.subTest("no connect() fails, and none ends cleanly before its time"):
            # If a connection is reset within a millisecond, connect() itself may report that.
            wrong = {how for how in seen["ends"] if how.startswith(("connect", "clean", "timed"))}
            self.assertLessEqual(wrong, {"connect: ECONNRESET"} if kills else set())
            self.assertLessEqual(seen["ends"].get("connect: ECONNRESET", 0), kills * threads)
        with self.subTest("no connect() waits"):
            self.assertLess(seen["longest"][0], within)
        with self.subTest("no server is told that a client came and went that never spoke"):
            self.assertEqual(server.get("ended without a token", 0), 0)
        with self.subTest("no server accepts what no client uses"):
            self.assertLessEqual(server["accepted"], sum(seen["ends"].values()))

    def restarts(self, how):
        print(f"{self._testMethodName}: SMC_SEED={SEED}", file=sys.stderr)
        rnd = random.Random(SEED)

        def fire(config):
            for _ in range(ROUNDS):
                time.sleep(rnd.uniform(0.05, 0.3))
                node = rnd.choice((self.a, self.b))
                node.agent.stop(how)
                node.start_agent(**config)

        self.under_fire(2.8, fire, kills=ROUNDS)  # TCP has repeated a SYN once, after a second

    def test_agents_that_are_killed(self):
        self.restarts(signal.SIGKILL)

    def test_agents_that_are_terminated(self):
        self.restarts(signal.SIGTERM)

    def waits_while_its_agent_dies(self, dropped):
        """A client waits, its request or answer lost, until the next agent runs; the decisions of that agent."""
        router = self.lab.node("r")
        self.lab.link(self.a, router)
        near = router.ip4
        self.lab.link(router, self.b)
        sh("ip", "-n", self.a.netns, "route", "add", f"{self.b.ip4}/32", "via", near)
        sh("ip", "-n", self.b.netns, "route", "add", f"{self.a.ip4}/32", "via", router.ip4)
        router.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        drop = f"table ip t {{ chain c {{ type filter hook forward priority 0; {dropped} drop; }}; }}"
        router.run(["nft", drop], check=True)
        self.a.start_agent()
        self.greeter()
        spec = {"to": self.b.ip4, "threads": 1, "count": 1, "timeout": 20}
        client = self.program(self.a, CLIENTS, json.dumps(spec))
        wait_for("the request", lambda: self.a.agent.decisions()["SMC_OUT_ASKED"] == 1)
        self.a.agent.stop(signal.SIGKILL)
        self.a.start_agent()
        retransmitted = "ss -Hti state syn-sent | grep -q 'retrans:[^ ]*/[2-9]'"
        wait_for("retransmissions", lambda: self.a.run(["sh", "-c", retransmitted]).returncode == 0)
        router.run(["nft", "flush", "ruleset"], check=True)
        self.assertEqual(json.loads(client.communicate(timeout=30)[0])["ends"], {"ok": 1})
        return self.a.agent.decisions()

    def test_a_connection_that_waits_is_asked_about_once(self):
        """The next agent knows nothing of a SYN that is older than itself, and leaves it alone."""
        decisions = self.waits_while_its_agent_dies("tcp dport 5000")
        self.assertEqual(decisions["SMC_OUT_ASKED"], 0)
        self.assertGreater(decisions["SMC_OUT_LATER_SYN"], 0)

    def test_an_answer_to_the_request_of_an_agent_that_died(self):
        """The answer is refused; or, if the SYN was repeated so often that the answer has no option any more, the
        application's connection goes through the server's agent."""
        self.b.start_agent()
        decisions = self.waits_while_its_agent_dies("tcp sport 5000")
        joined = self.b.agent.totals().get(("fallback", "answer_lost"), 0)
        self.assertGreater(decisions["SMC_ANSWER_UNASKED"] + joined, 0)

    def hung(self, node):
        rounds = max(1, ROUNDS // 10)  # of six seconds

        def fire(_):
            for number, seconds in ((signal.SIGSTOP, 5), (signal.SIGCONT, 0)) * rounds:
                time.sleep(0.5)
                node.agent.send_signal(number)
                time.sleep(seconds)

        # A SYN from before is repeated in vain while the heartbeat is not too old, and once more after 3 s.
        self.under_fire(3.9, fire)

    def test_an_agent_that_hangs_at_the_client(self):
        self.hung(self.a)

    def test_an_agent_that_hangs_at_the_server(self):
        self.hung(self.b)


if __name__ == "__main__":
    unittest.main()
