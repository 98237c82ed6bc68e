# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Peers that are broken or hostile. After each test the agent works, and nothing has leaked."""
import json
import random
import unittest
import uuid

import rogue
from base import TIME_ENOUGH, TwoNodes
from lab.basics import wait_for
from rogue import EYE_R, proposal

RAW_IP = "10.77.0.50"


class Hostile(TwoNodes):
    LIMITS = {"handshakes": 10000, "namespace_percent": 100, "cgroup_percent": 100}
    # For tests that need many slow handshakes, or one that lasts until it is inspected.
    PATIENT = (
        "test_two_thousand_connections_at_once",
        "test_a_burst_is_accelerated_as_far_as_it_can_be_in_time",
        "test_dies_between_messages",
    )

    def setUp(self):
        super().setUp()
        patient = self._testMethodName in self.PATIENT
        self.b.start_agent(smc={"step_timeout_ms": 20000 if patient else 1000}, limits=self.LIMITS)
        self.serve()

    def tearDown(self):
        """After each test the agent still works."""
        if self.a.agent is None:
            self.a.start_agent()
        before = self.b.agent.totals().get(("smcd", "none"), 0)

        def accelerated():
            self.assertTrue(self.connect()["ok"])
            return self.b.agent.totals().get(("smcd", "none"), 0) > before

        wait_for("a connection to be accelerated", accelerated, 60)  # a client may remember a failure for 1 s

    def clients(self):
        clients = rogue.Clients(self.a, RAW_IP, self.b.ip4)
        self.addCleanup(clients.close)
        return clients

    def attack(self, expect, reason, count=1, timeout=120, **script):
        before = self.resources()
        text = json.dumps({"count": count, "listen_s": 60, **script})
        results = self.raw_results(self.raw(self.a, RAW_IP, "client", self.b.ip4, 5000, text), timeout)
        self.assertEqual({r["ended"] for r in results}, {expect}, results[:3])
        self.assertEqual(len(results), count)
        self.assertGivenBack(before)
        self.assertPath(self.b, "refused", reason, count)
        self.assertIn(f"reason {reason}", self.b.agent_log())
        return results

    def is_the_applications(self, ip, sent):
        """The client may have been answered without the option: the agent must pass its bytes on, whatever they are."""
        before, known = self.resources(), self.b.agent.totals().get(("fallback", "answer_lost"), 0)
        text = json.dumps({"send": [sent.hex()], "close": "fin", "listen_s": 60})
        (seen,) = self.raw_results(self.raw(self.a, ip, "client", self.b.ip4, 5000, text))
        self.assertEqual((seen["received"], seen["ended"]), (sent.hex(), "fin"))
        self.assertPath(self.b, "fallback", "answer_lost", known + 1)
        self.assertGivenBack(before)

    def test_random_bytes(self):
        rnd = random.Random(7)
        for number in range(5):
            self.is_the_applications(f"10.77.0.{60 + number}", rnd.randbytes(rnd.randrange(1, 400)))

    def test_wrong_eye_catchers_and_lengths(self):
        bad = {
            "eye catcher at the end": proposal()[:-2] + "00",
            "type": proposal(_4=9),
            "an Accept instead": proposal(_4=2),
            "length 0": proposal(length=0)[:10] + "0000" + proposal()[14:],
            "length beyond every message": proposal(length=60000),
            "offset outside": proposal(_51=0xFF),
            "nine EIDs": proposal(_80=9),
            "reserved CHID not repeated": proposal(_219=0x01),
        }
        for what, message in bad.items():
            with self.subTest(what):
                self.attack("rst", "protocol_error", send=[message])

    def test_truncated(self):
        self.attack("rst", "handshake_timeout", send=[proposal()[:100]])
        self.attack("rst", "peer_closed", send=[proposal()[:100]], close="fin")

    def test_says_nothing(self):
        clients, before = self.clients(), self.resources()
        client = clients.connect()
        wait_for("it to be the application's", lambda: self.b.agent.totals() == {("fallback", "answer_lost"): 1})
        self.assertEqual(self.resources()["connections"], 1)
        clients.reset(client)
        self.assertGivenBack(before)

    def test_trickles(self):
        self.attack("rst", "handshake_timeout", send=[proposal()], trickle=0.3)

    def test_dies_between_messages(self):
        self.attack("rst", "peer_closed", close="rst")
        before, clients = self.resources(), self.clients()
        for flags in ("RA", "FA"):
            with self.subTest(f"after the Accept, by {flags}"):
                agent = rogue.FabricAgent(self.b.agent.status()["ism"]["directory"]).listen()
                died = self.b.agent.totals()[("refused", "peer_closed")]
                client, _ = clients.accepted()
                self.assertEqual(self.resources()["registered"], before["registered"] + 1)
                client.out(flags)
                wait_for("it to be found out", lambda: self.b.agent.totals()[("refused", "peer_closed")] == died + 1)
                agent.close()
                self.assertGivenBack(before)

    def declined(self, gid):
        """A client with this GID is declined and goes on as TCP; its port as the server sees it."""
        clients, before = self.clients(), self.resources()
        client = clients.connect(bytes.fromhex(proposal(gid=gid)) + b"who")
        clients.until("a Decline and an answer", lambda: len(client.received) > 44)
        self.assertEqual(client.received[:8].hex(), EYE_R + "04002c20")
        self.assertEqual(client.received[16:20].hex(), "03030007")
        self.assertEqual(self.b.agent.totals(), {("fallback", "no_smcd_v2_device"): 1})
        held = self.resources()
        self.assertEqual((held["connections"], held["dmbs"], held["registered"]), (1, 0, 0))
        clients.reset(client)
        self.assertGivenBack(before)
        ip, port = client.received[44:].decode().split()
        self.assertEqual(ip, RAW_IP)
        return int(port)

    def test_a_gid_that_is_not_on_the_fabric_is_declined(self):
        # the client's own port has the agent's CLC socket
        self.assertGreaterEqual(self.declined(rogue.GID), 61000)

    def test_its_own_gid_is_declined(self):
        own = self.b.agent.status()["ism"]["gid"]
        self.declined(uuid.UUID(own).bytes)

    def test_two_thousand_connections_that_begin_and_stop(self):
        self.attack("rst", "handshake_timeout", send=[proposal()[:100]], count=2000)
        self.assertLess(self.b.agent_log().count("reason handshake_timeout"), 1000)  # the log is not flooded

    def two_thousand(self):
        done = self.a.python(
            f"""
import resource, select, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
poller, socks = select.epoll(), {{}}
for i in range(2000):
    s = socket.socket(); s.setblocking(False); s.connect_ex(('{self.b.ip4}', 5000))
    socks[s.fileno()] = (s, b'%04d' % i)
    poller.register(s.fileno(), select.EPOLLOUT)
good = 0
while socks:
    ready = poller.poll(30)
    if not ready:
        print(len(socks), "without an answer"); break
    for fd, event in ready:
        s, word = socks[fd]
        try:
            if event & select.EPOLLOUT and not event & select.EPOLLIN:
                s.send(word); poller.modify(fd, select.EPOLLIN)
            else:
                got = s.recv(10)
                if got == word: good += 1
                else: print(word, "came back as", got, "event", event)
                poller.unregister(fd); del socks[fd]; s.close()
        except OSError as e:
            print(e); poller.unregister(fd); del socks[fd]
print(good)
""",
            timeout=120,
        )
        self.assertEqual(
            done.stdout, "2000\n", f"{done.stderr} client {self.a.agent.totals()} server {self.b.agent.totals()}"
        )

    def test_a_burst_is_accelerated_as_far_as_it_can_be_in_time(self):
        self.a.start_agent(
            limits={"handshakes": 100, "cgroup_percent": 100}, fallback={"cache_s": 1, "budget_ms": 10000}
        )
        self.two_thousand()
        totals = self.a.agent.totals()
        self.assertGreaterEqual(totals[("smcd", "none")], 75)
        self.assertEqual(set(totals), {("smcd", "none"), ("fallback", "limit")})
        self.assertTrue(self.a.agent.status()["agent"]["serving"])
        self.connect()
        self.assertEqual(self.a.agent.totals()[("smcd", "none")], totals[("smcd", "none")] + 1)

    def test_two_thousand_connections_at_once(self):
        slow = {"smc": {"step_timeout_ms": 20000}, "fallback": {"budget_ms": 30000, "cache_s": 1}}
        self.a.start_agent(limits=self.LIMITS, **slow)
        before = self.resources()
        self.two_thousand()
        # agents wait while the fabric's request queue is full, and do not take that for a failure
        for node in (self.a, self.b):
            self.assertFalse([key for key in node.agent.totals() if key[1] == "fabric"], node.agent.totals())
        # on a slow machine most of them may end up as plain TCP, but they were begun
        begun, late = sum(self.b.agent.totals().values()), 0
        for node in (self.a, self.b):  # an agent that gets no processor for a second is not asked
            decisions = node.agent.decisions()
            late += decisions["SMC_OUT_AGENT_STALE"] + decisions["SMC_IN_AGENT_STALE"]
        self.assertGreater(begun + late, 1000)
        self.assertGreater(begun, 100)
        # only the fabric connections stay, one each way
        wait_for(
            "everything to be given back",
            lambda: {**self.resources(), "fds": 0} == {**before, "fds": 0}
            and self.resources()["fds"] <= before["fds"] + 4,
            60,
        )


# Accepts nobody until it is told to, and then echoes. One connection fits into its queue.
SLOW_TO_ACCEPT = """
import socket, sys, threading
s = socket.create_server(('0.0.0.0', 5000), backlog=0); print('ready', flush=True); sys.stdin.readline()
def echo(c):
    while d := c.recv(100): c.sendall(d)
while True: threading.Thread(target=echo, args=[s.accept()[0]], daemon=True).start()
"""


class WithoutAgent(TwoNodes):
    """Clients without an agent, which fail if the server's agent resets them."""

    def clients(self):
        clients = rogue.Clients(self.a, RAW_IP, self.b.ip4)
        self.addCleanup(clients.close)
        return clients

    def test_who_was_answered_before_the_agent_was_full_is_served(self):
        self.b.start_agent(limits={"connections": 1, "namespace_percent": 100, "cgroup_percent": 100}, **TIME_ENOUGH)
        self.serve()
        clients = self.clients()
        both = [clients.begin(), clients.begin()]
        clients.until("both SYN-ACKs", lambda: all(client.established for client in both))
        for client in both:
            client.out("PA", data=b"hello")
            self.assertEqual(clients.receive(client, 5), b"hello")
        self.assertFalse(self.b.agent.status()["agent"]["serving"])

    def test_a_queue_that_is_full_for_a_moment(self):
        """The leg's SYN is dropped, and sent again a second later, as a client's own would be."""
        self.b.start_agent(**TIME_ENOUGH)
        server = self.program(self.b, SLOW_TO_ACCEPT, says="ready")
        self.program(self.b, "import socket; c = socket.create_connection(('127.0.0.1', 5000)); print('up'); input()")
        dropped = lambda: self.b.run(["nstat", "-asz", "TcpExtListenDrops"]).stdout.split()[-2]
        wait_for("the queue to be full", lambda: "1" == self.b.run(["ss", "-Hltn", "sport = 5000"]).stdout.split()[1])
        clients, before = self.clients(), dropped()
        client = clients.connect(b"hello")
        wait_for("the leg's SYN to be dropped", lambda: dropped() != before)
        self.tell(server, "go")
        self.assertEqual(clients.receive(client, 5), b"hello")


class FewHandshakes(TwoNodes):
    def test_silent_clients_leave_plain_tcp_until_they_time_out(self):
        # All four silent clients stay while other connections are tested.
        few = {"handshakes": 4, "namespace_percent": 100, "cgroup_percent": 100}
        self.b.start_agent(smc={"step_timeout_ms": 20000}, limits=few)
        self.a.start_agent(fallback={"budget_ms": 10000})
        self.serve()
        clients = rogue.Clients(self.a, RAW_IP, self.b.ip4)
        self.addCleanup(clients.close)
        silent = [clients.connect() for _ in range(3)]
        wait_for("them to be in the agent", lambda: len(self.b.agent.connections()) == 3)
        self.assertTrue(self.connect()["ok"])  # one place is left
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1})

        silent.append(clients.connect())
        wait_for("the agent to be full", lambda: not self.b.agent.status()["agent"]["serving"])
        full = "NOT SERVING, it has as many handshakes as it may have (limits.handshakes)"
        self.assertIn(full, self.b.agent.ctl("status").stdout)
        self.assertAtOnce(self.connect())  # the server was known to speak SMC, and is forgotten now
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1, ("fallback", "peer_no_smc"): 1})
        self.assertEqual(self.b.agent.decisions()["SMC_IN_AGENT_FULL"], 1)
        self.assertAtOnce(self.connect())  # so this connection asked, and was answered by plain TCP
        self.assertEqual(self.b.agent.decisions()["SMC_IN_AGENT_FULL"], 2)
        self.assertEqual(self.a.agent.decisions()["SMC_ANSWER_PLAIN"], 1)

        for client in silent:
            clients.reset(client)
        wait_for("the agent to serve", lambda: self.b.agent.status()["agent"]["serving"])
        self.assertPath(self.b, "refused", "peer_closed", 4)
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd", at_least=2)


if __name__ == "__main__":
    unittest.main()
