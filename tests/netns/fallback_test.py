# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections that stay on TCP, for every reason, and lose nothing."""
import json
import signal
import unittest
from functools import partial

from base import CLIENT, TIME_ENOUGH, TwoNodes
from lab.basics import sh, wait_for
from lab.rawtcp import SMC_OPTION
from lab.sockets import waits_of

RAW_IP = "10.77.0.50"
DECLINE = "e2d4c3d904001c10" + "00" * 8 + "03030008" + "00" * 4 + "e2d4c3d9"

WHEN_TOLD = "import sys; print('ready', flush=True); sys.stdin.readline()\n"

# Listens. On a line of stdin it opens a second listener of the same port, closes the first one, and serves one client.
ROLLING = """
import socket, sys
def listener():
    s = socket.socket(); s.setsockopt(1, 15, 1); s.bind(('', 5000)); s.listen(); return s
old = listener(); print('ready', flush=True); sys.stdin.readline()
new = listener(); old.close(); print('rolled', flush=True)
c, _ = new.accept()
while d := c.recv(100): c.sendall(d)
"""

# Connects from a port to an echo server. On a line of stdin it resets the connection.
FROM_A_PORT = """
import socket, struct, sys
c = socket.socket(); c.settimeout(4); c.setsockopt(1, 2, 1); c.setsockopt(1, 13, struct.pack('ii', 1, 0))
c.bind(('', int(sys.argv[2]))); c.connect((sys.argv[1], 5000)); c.sendall(b'x'); print(c.recv(1).decode(), flush=True)
sys.stdin.readline()
"""

# Connects and sets options of its socket. It sends its stdin, and prints how the connection ended.
PATIENT = """
import errno, json, socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10); c.sendall(b'x'); c.settimeout(40)
for level, option, value in json.loads(sys.argv[3]): c.setsockopt(level, option, value)
print('ready', flush=True); c.sendall(sys.stdin.readline().strip().encode())
try: print(c.recv(10), flush=True)
except OSError as e: print(errno.errorcode.get(e.errno, e), flush=True)
"""


# Listens on a port, and when told connects from it, closes that socket, and says whether it can accept a connection.
DIAL = """
import errno, socket, sys
def bound(s):
    s.setsockopt(1, 2, 1); s.setsockopt(1, 15, 1); s.bind(('0.0.0.0', 4444)); s.setblocking(False)
    return s
listener, dial = bound(socket.socket()), bound(socket.socket())
listener.listen(); print('listening', flush=True); sys.stdin.readline()
print(errno.errorcode[dial.connect_ex((sys.argv[1], 5000))], flush=True); sys.stdin.readline()
dial.close(); print('closed', flush=True); sys.stdin.readline()
try: print(listener.accept(), flush=True)
except BlockingIOError: print('nobody', flush=True)
"""

# Dials from a port; when told, gives that up and dials from the same port again; when told, speaks.
DIAL_TWICE = """
import errno, select, socket, struct, sys
def dial():
    c = socket.socket(); c.setsockopt(1, 2, 1); c.bind(('', 40001)); c.setblocking(False)
    print(errno.errorcode[c.connect_ex((sys.argv[1], 5000))], flush=True); sys.stdin.readline(); return c
c = dial(); c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.close(); c = dial()
select.select([], [c], [], 20); c.settimeout(20); c.sendall(b'hello'); print(c.recv(5).decode(), flush=True)
"""


class Fallback(TwoNodes):
    def test_a_server_without_smc_is_asked_and_answers_plain_tcp(self):
        self.a.start_agent()
        self.serve()
        for _ in range(2):  # the server is not remembered: it may speak SMC later
            self.assertTrue(self.connect()["ok"])
        decisions = self.a.agent.decisions()
        self.assertEqual((decisions["SMC_OUT_ASKED"], decisions["SMC_ANSWER_PLAIN"]), (2, 2))
        self.assertEqual(self.a.agent.totals(), {})  # the agent was not told of it
        self.assertEqual(self.table(self.a, "smc_requests"), [])

    def test_the_memory_of_servers_is_bounded(self):
        self.a.start_agent(fallback={"cache_entries": 16})
        self.b.start_agent()
        self.program(
            self.b,
            """
import select, socket
socks = [socket.create_server(('0.0.0.0', 5000 + i)) for i in range(60)]
print('ready', flush=True)
while True:
    for s in select.select(socks, [], [])[0]: s.accept()[0].close()""",
            says="ready",
        )
        done = self.a.python(
            f"""
import socket
for i in range(60): socket.create_connection(('{self.b.ip4}', 5000 + i)).recv(1)"""
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertPath(self.a, "smcd", at_least=60)
        entries = self.table(self.a, "smc_servers")
        self.assertTrue(0 < len(entries) <= 16, len(entries))

    def test_a_capable_server_is_remembered_and_a_wrong_memory_costs_nothing(self):
        self.start_agents()
        self.serve()
        for _ in range(2):
            self.assertTrue(self.connect()["ok"])
        decisions = self.a.agent.decisions()
        self.assertEqual((decisions["SMC_OUT_ASKED"], decisions["SMC_OUT_HELD"]), (1, 1))
        self.b.agent.stop()
        self.assertAtOnce(self.connect())
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_HELD"], 2)
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_ASKED"], 2)  # the server was forgotten

    def test_a_capable_server_is_asked_once_and_remembered(self):
        self.start_agents()
        self.serve()
        for _ in range(3):
            self.assertTrue(self.connect()["ok"])
        decisions = self.a.agent.decisions()
        self.assertEqual((decisions["SMC_OUT_ASKED"], decisions["SMC_OUT_HELD"]), (1, 2))
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 3})

    def test_decline_without_a_common_eid(self):
        self.a.start_agent(smc={"ueids": ["BLUE"]})
        self.b.start_agent(smc={"ueids": ["GREEN"]})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "fallback", "peer_declined")
        self.assertPath(self.b, "fallback", "no_ueid")
        ended = self.a.agent.connections(ended=True)[0]
        self.assertIn("no_ueid", ended["detail"])
        self.assertIn("not asked for SMC for a while", self.a.agent.ctl("explain", f"{self.b.ip4}:5000").stdout)
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_declined"): 1})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NOT_NOW"], 1)

    def test_a_server_that_failed_is_asked_again_later(self):
        self.a.start_agent(smc={"ueids": ["BLUE"]}, fallback={"cache_s": 1})
        self.b.start_agent(smc={"ueids": ["GREEN"]})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        wait_for(
            "the memory to age",
            lambda: "not asked for SMC for a while" not in self.a.agent.ctl("explain", f"{self.b.ip4}:5000").stdout,
        )
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_declined"): 2})

    def test_a_decline_behind_the_servers_leg_leaves_no_trace(self):
        """The client has no memory for a DMB, which it learns when the server's leg is connected: its application then
        connects by itself at once, and the server's application sees only one connection."""
        self.a.start_agent(ism={"dmb_kib": 4096}, limits={"connections": 1})
        self.b.start_agent()
        server = self.serve()
        sh("prlimit", "--pid", str(self.a.agent.pid), "--fsize=1000000")  # a DMB is a file
        self.assertAtOnce(self.connect())
        self.assertEqual(self.accepted(), 1)
        wait_for("nothing to be held", lambda: self.table(self.b, "smc_requests") == [], 20)  # they age in 30 s
        self.assertEqual([c for c in self.a.agent.connections(ended=True) if c["path"] == "smcd"], [])
        self.assertEqual(self.b.agent.decisions()["SMC_LEG_JOINED"], 1)
        self.assertIsNone(server.poll())

    def test_decline_on_another_fabric(self):
        self.a.start_agent()
        self.b.start_agent(ism={"chid": "0xff01"})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "fallback", "no_smcd_v2_device")

    def test_seid_alone_is_enough(self):
        self.start_agents(smc={"ueids": [], "seid": "THIS-HOST"})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")

    # --- while one agent is late ---------------------------------------------------------------------------------
    def slow_server(self):
        """The server's agent hangs, but its heartbeat stays valid. The client's agent has sent its Proposal. Both
        agents wait for longer than the application needs to send a SYN after the client's heartbeat has aged."""
        patient = {"fallback": {"budget_ms": 30000}, "smc": {"step_timeout_ms": 60000}}
        self.a.start_agent(times={"stale_ms": 5000}, **patient)
        self.b.start_agent(times={"stale_ms": 60000}, **patient)
        self.serve()
        client = self.program(self.a, WHEN_TOLD + CLIENT, self.b.ip4, 5000, says="ready")
        self.b.agent.send_signal(signal.SIGSTOP)
        self.tell(client, "go")
        self.wait_for_proposal()
        return client

    def wait_for_proposal(self):
        """Waits until the server's agent, which hangs, has a Proposal to read."""
        unread = ["ss", "-Htn", "state", "established", "sport", "=", ":5000"]
        lines = lambda: self.b.run(unread).stdout.splitlines()
        wait_for("the Proposal", lambda: any(int(line.split()[0]) for line in lines()))

    def test_a_syn_is_kept_while_the_agents_talk(self):
        client = self.slow_server()
        wait_for("its retransmission", lambda: self.a.agent.decisions()["SMC_SYN_HELD"])
        self.b.agent.send_signal(signal.SIGCONT)
        self.assertTrue(json.loads(self.hear(client))["ok"])
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1})
        self.assertEqual(self.a.agent.decisions()["SMC_SYN_LET_GO"], 0)

    def test_a_client_that_goes_on_while_its_agent_hangs(self):
        """The server's leg, which was not accepted, makes way. When the client's agent continues, it is too late."""
        client = self.slow_server()
        self.a.agent.send_signal(signal.SIGSTOP)
        self.b.agent.send_signal(signal.SIGCONT)
        wait_for("the server's leg", lambda: self.decisions(self.b)["SMC_LEG_JOINED"])
        leg_is_first = self.decisions(self.a)["SMC_SYN_LET_GO"] == 0  # else the machine is too busy for this test
        seen = json.loads(self.hear(client))
        self.assertTrue(seen["ok"], seen)
        self.assertGreater(self.decisions(self.a)["SMC_SYN_LET_GO"], 0)
        if leg_is_first:
            self.assertGreater(self.b.agent.decisions()["SMC_IN_TUPLE_REUSED"], 0)  # for each of its SYNs
        self.a.agent.send_signal(signal.SIGCONT)
        wait_for("the client's leg", lambda: self.a.agent.decisions()["SMC_LEG_LATE"])
        self.assertEqual(self.a.agent.decisions()["SMC_LEG_JOINED"], 0)
        self.assertEqual(self.accepted(), 1)
        wait_for("its end", self.a.agent.totals)
        self.assertEqual(self.a.agent.totals(), {("refused", "application_gone"): 1})

    def test_a_listener_that_closes_while_the_agents_talk(self):
        """As in a rolling restart with SO_REUSEPORT. The half-open connection of the leg goes with its listener, and
        the other one, which has been there before, gets the client."""
        self.a.start_agent(fallback={"budget_ms": 20000}, times={"stale_ms": 60000})
        self.b.start_agent(fallback={"budget_ms": 20000}, times={"stale_ms": 60000})
        server = self.program(self.b, ROLLING, says="ready")
        client = self.program(self.a, WHEN_TOLD + CLIENT, self.b.ip4, 5000, says="ready")
        self.b.agent.send_signal(signal.SIGSTOP)
        self.tell(client, "go")
        self.wait_for_proposal()
        self.a.agent.send_signal(signal.SIGSTOP)
        self.b.agent.send_signal(signal.SIGCONT)
        wait_for("the server's leg", lambda: self.decisions(self.b)["SMC_LEG_JOINED"])
        self.tell(server, "roll")
        self.assertEqual(self.hear(server), "rolled")
        self.a.agent.send_signal(signal.SIGCONT)
        seen = json.loads(self.hear(client))
        self.assertTrue(seen["ok"], seen)
        wait_for("its end", self.a.agent.totals)
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1})

    def test_a_dial_from_a_listeners_port_that_is_given_up(self):
        """The client's leg comes when the socket has been closed, and does not reach the listener of the same port."""
        self.start_agents(**TIME_ENOUGH)
        self.serve()
        self.assertTrue(self.connect()["ok"])  # so that the next SYN is held
        dial = self.program(self.a, DIAL, self.b.ip4, says="listening")
        self.b.agent.send_signal(signal.SIGSTOP)
        self.tell(dial, "dial")
        self.assertEqual(self.hear(dial), "EINPROGRESS")
        wait_for("the agents to talk", lambda: self.a.agent.connections(5000))
        self.tell(dial, "close")
        self.assertEqual(self.hear(dial), "closed")
        self.b.agent.send_signal(signal.SIGCONT)
        wait_for("the leg", lambda: self.a.agent.decisions()["SMC_LEG_LATE"])
        wait_for("its end", lambda: ("refused", "application_gone") in self.a.agent.totals())
        self.tell(dial, "accept")
        self.assertEqual(self.hear(dial), "nobody")
        self.assertEqual(self.accepted(), 1)

    def test_a_port_that_is_used_again_while_the_agents_talk(self):
        """Two sessions then have the same tuple. Nothing of the first one joins, ends or holds back the second."""
        self.start_agents(fallback={"budget_ms": 20000}, times={"stale_ms": 60000, "standstill_ms": 60000})
        self.serve()
        self.assertTrue(self.connect()["ok"])  # so that SYNs to the server are held
        for node in (self.a, self.b):
            wait_for("that connection to end", lambda node=node: not node.agent.connections(5000))
        self.b.agent.send_signal(signal.SIGSTOP)
        dial = self.program(self.a, DIAL_TWICE, self.b.ip4, says="EINPROGRESS")
        wait_for("the agents to talk", lambda: len(self.a.agent.connections(5000)) == 1)
        self.tell(dial, "again")
        self.assertEqual(self.hear(dial), "EINPROGRESS")
        wait_for("both sessions", lambda: len(self.a.agent.connections(5000)) == 2)
        self.b.agent.send_signal(signal.SIGCONT)
        self.tell(dial, "speak")
        self.assertEqual(self.hear(dial), "hello")
        for node in (self.a, self.b):
            wait_for("both to end", lambda node=node: not node.agent.connections(5000))
        self.assertEqual(self.b.agent.decisions()["SMC_LEG_CONFLICT"], 1)
        self.assertEqual(self.a.agent.decisions()["SMC_LEG_LATE"], 1)
        ends = {("smcd", "none"): 1, ("refused", "application_gone"): 1, ("fallback", "peer_declined"): 1}
        self.assertEqual(self.a.agent.totals(), ends)

    def test_an_agent_that_is_killed_while_the_agents_talk(self):
        """Its death has no lasting effect: its successor is asked again, although the last connection failed."""
        client = self.slow_server()
        self.b.agent.stop(signal.SIGKILL)
        self.assertTrue(json.loads(self.hear(client))["ok"])
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_closed"): 1})
        self.b.start_agent()

        def accelerated():
            self.assertTrue(self.connect()["ok"])
            return ("smcd", "none") in self.a.agent.totals()

        wait_for("it to be asked again", accelerated)

    def test_a_port_that_is_in_use_at_the_server(self):
        """The server has an old connection of that port, not knowing its end: no agent's connection replaces it."""
        self.serve()
        first = self.program(self.a, FROM_A_PORT, self.b.ip4, 40000, says="x")
        lost = "table inet t { chain c { type filter hook output priority 0; tcp sport 40000 drop; }; }"
        self.a.run(["nft", lost], check=True)
        self.tell(first, "go")
        first.wait(5)
        self.a.run(["nft", "flush", "ruleset"], check=True)
        self.start_agents()
        self.assertTrue(self.connect()["ok"])  # so that the server is remembered, and a SYN of this port is held
        self.program(self.a, FROM_A_PORT, self.b.ip4, 40000, says="x")
        self.assertEqual(self.b.agent.decisions()["SMC_LEG_CONFLICT"], 1)
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1, ("fallback", "peer_declined"): 1})
        self.assertEqual(self.b.agent.totals(), {("smcd", "none"): 1, ("fallback", "server_refused"): 1})

    def ask_a_server_that_waits(self, peer):
        """A client that has sent a request to `peer`, and that server, which answers when it gets SIGCONT."""
        self.a.start_agent()
        client = self.program(self.a, WHEN_TOLD + CLIENT, RAW_IP, 6000, 5, says="ready")
        # Until then it does not answer ARP either.
        mac = sh("ip", "netns", "exec", self.b.netns, "cat", f"/sys/class/net/{self.b.device}/address").strip()
        sh("ip", "-n", self.a.netns, "neigh", "add", RAW_IP, "lladdr", mac, "dev", self.a.device)
        peer.send_signal(signal.SIGSTOP)
        self.tell(client, "go")
        wait_for("the request", lambda: self.decisions(self.a)["SMC_OUT_ASKED"])
        return client, peer

    def test_an_answer_that_finds_no_agent(self):
        """The answer is refused, because the application did not ask; the application's own SYN follows."""
        client, peer = self.ask_a_server_that_waits(self.peer(SMC_OPTION, seconds=15))
        self.a.agent.stop(signal.SIGKILL)
        peer.send_signal(signal.SIGCONT)
        seen = json.loads(self.hear(client))
        self.assertGreater(seen.pop("took"), 0)  # so connect() succeeded, and recv() has failed
        self.assertEqual(seen, {"ok": False, "error": "timed out"})
        counters = self.decisions(self.a)
        self.assertEqual((counters["SMC_ANSWER_REFUSED"], counters["SMC_ANSWER_SMC"]), (1, 0))
        self.assertEqual(counters["SMC_SYN_LET_GO"], 1)
        self.assertEqual(self.heard(peer), [("refused", b""), ("fin", b"who")])

    def test_an_answer_that_finds_an_agent_that_takes_no_connections(self):
        """The agent sends the application's SYN at once, so the application need not send it again."""
        client, peer = self.ask_a_server_that_waits(self.peer(SMC_OPTION, [b"who".hex()], seconds=15))
        self.assertEqual(self.a.agent.ctl("drain").returncode, 0)
        peer.send_signal(signal.SIGCONT)
        self.assertGreater(json.loads(self.hear(client))["took"], 0)  # connect() succeeded, and nobody has echoed
        counters = self.decisions(self.a)
        self.assertEqual((counters["SMC_ANSWER_REFUSED"], counters["SMC_ANSWER_SMC"]), (0, 1))
        self.assertEqual(counters["SMC_SYN_LET_GO"], 0)  # TCP did not have to send it again
        self.assertPath(self.a, "fallback", "stopped")

    def test_an_agent_that_was_killed_just_now(self):
        """The heartbeat of the killed agent is not too old yet."""
        self.serve()
        for _ in range(5):
            self.a.start_agent()
            client = self.program(self.a, WHEN_TOLD + CLIENT, self.b.ip4, 5000, says="ready")
            before = self.decisions(self.a)
            self.a.agent.stop(signal.SIGKILL)
            self.tell(client, "go")
            self.assertAtOnce(json.loads(self.hear(client)))
            after = self.decisions(self.a)
            if after["SMC_OUT_AGENT_STALE"] == before["SMC_OUT_AGENT_STALE"]:
                break  # otherwise the heartbeat was too old already
        self.assertEqual(after["SMC_OUT_AGENT_GONE"], before["SMC_OUT_AGENT_GONE"] + 1)

    # --- peers that no agent would be ------------------------------------------------------------------------
    def peer(self, options, send=(), seconds=8, **more):
        """Starts a server on RAW_IP that answers SYNs with these options, and then sends the given bytes."""
        script = {"options": options, "send": list(send), "listen_s": seconds, **more}
        process = self.raw(self.b, RAW_IP, "server", 6000, json.dumps(script))
        self.assertEqual(self.hear(process), "listening")
        return process

    def talk(self):
        """An application connects to the raw peer and sends one line; its result."""
        return self.a.python(
            f"""
import socket, time
began = time.monotonic()
c = socket.create_connection(('{RAW_IP}', 6000), 12); took = time.monotonic() - began
c.sendall(b'GET /'); c.settimeout(1)
try: print('got', c.recv(100))
except OSError as e: print('got', type(e).__name__)
print('slow' if took > 2.5 else 'in time')
""",
            timeout=30,
        ).stdout

    def heard(self, process):
        """The bytes that the raw peer received, by connection: request, CLC socket, application."""
        return [(r["ended"], bytes.fromhex(r["received"])) for r in self.raw_results(process)]

    def test_a_peer_that_echoes_unknown_options_gets_plain_tcp(self):
        self.a.start_agent()
        peer = self.peer("echo")
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertEqual(self.a.agent.decisions()["SMC_ANSWER_ECHOED"], 1)
        self.assertEqual([data for _, data in self.heard(peer)], [b"GET /"])  # and not one byte of CLC

    def test_a_peer_that_echoes_unknown_options_through_a_bridge(self):
        """The answer passes two devices. Its request is over at the first one, so it must not be taken for unasked."""
        self.use_bridge(self.a)
        self.a.start_agent()
        self.peer("echo")
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        decisions = self.a.agent.decisions()
        self.assertEqual([decisions[d] for d in ("SMC_ANSWER_ECHOED", "SMC_ANSWER_UNASKED")], [1, 0])

    def test_a_peer_that_has_the_option_but_never_answers(self):
        self.a.start_agent(smc={"step_timeout_ms": 500})
        peer = self.peer(SMC_OPTION)
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertPath(self.a, "fallback", "handshake_timeout")
        request, clc, plain = self.heard(peer)
        self.assertEqual((request, clc[0]), (("refused", b""), "rst"))
        self.assertEqual(plain[1], b"GET /")

    def test_nobody_pays_more_than_the_budget_and_that_once(self):
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, seconds=12)
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertPath(self.a, "fallback", "budget")
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertEqual(self.a.agent.totals(), {("fallback", "budget"): 1})
        self.assertEqual([data for _, data in self.heard(peer)][2:], [b"GET /", b"GET /"])

    def test_a_peer_whose_every_answer_has_the_option(self):
        """It answers so even if the SYN did not ask, so its option has no meaning."""
        self.a.start_agent(fallback={"budget_ms": 300})
        peer = self.peer(SMC_OPTION, always=True)
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertEqual(self.heard(peer)[-1][1], b"GET /")

    def test_a_peer_that_answers_the_proposal_with_application_data(self):
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, [b"220 welcome to a server that speaks first\r\n".hex()])
        self.assertEqual(self.talk(), "got b'220 welcome to a server that speaks first\\r\\n'\nin time\n")
        self.assertPath(self.a, "fallback", "protocol_error")
        self.assertEqual(self.heard(peer)[-1][1], b"GET /")

    def test_a_path_that_drops_syns_with_unknown_options(self):
        self.a.start_agent()
        process = self.peer("", deaf_to=SMC_OPTION, seconds=9)
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertEqual(self.a.agent.decisions()["SMC_ANSWER_LOST"], 1)
        self.assertIn("without the option", self.a.agent.ctl("explain", f"{RAW_IP}:6000").stdout)
        self.assertEqual(self.talk(), "got TimeoutError\nin time\n")
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NOT_NOW"], 1)
        self.assertEqual([data for _, data in self.heard(process)], [b"GET /", b"GET /"])

    def test_what_follows_a_decline_is_the_applications(self):
        """A server without an agent continues on the connection that carried CLC."""
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, [DECLINE + b"banner".hex()])
        self.assertEqual(self.talk(), "got b'banner'\nin time\n")
        self.assertPath(self.a, "fallback", "peer_declined")
        request, clc = self.heard(peer)
        self.assertEqual(request[0], "refused")
        self.assertTrue(clc[1].startswith(bytes.fromhex("e2d4c3d901")) and clc[1].endswith(b"GET /"))

    def test_half_closed_behind_a_decline_and_its_application_gone(self):
        """It is forgotten as by TCP after FIN-WAIT-2, although the server never ends its half."""
        self.a.run(["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=5"], check=True)
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, [DECLINE], seconds=40)
        done = self.a.python(f"import socket; socket.create_connection(('{RAW_IP}', 6000)).send(b'x')")
        self.assertEqual(done.returncode, 0, done.stderr)
        wait_for("the fallback", lambda: self.a.agent.totals() == {("fallback", "peer_declined"): 1})
        self.assertEqual(len(self.a.agent.connections()), 1)
        wait_for("the connection to be forgotten", lambda: not self.a.agent.connections(), 30)
        self.assertIsNone(peer.poll())

    def cut_off(self, options, wanted, data):
        """How a declined connection ends, when the server is gone, for an application with a timeout of a few seconds.
        `wanted`: the timeouts that the agent's socket to the server must have."""
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, [DECLINE], seconds=60)
        client = self.program(self.a, PATIENT, RAW_IP, 6000, json.dumps(options), says="ready")
        found = partial(waits_of, self.a.agent.pid, 6000)
        wait_for("it to be passed on", lambda: wanted in found(), 60)
        peer.kill()
        peer.wait()
        self.tell(client, data)
        return self.hear(client)

    def test_keepalive_of_an_application_behind_a_decline(self):
        options = [(1, 9, 1), (6, 4, 1), (6, 5, 1), (6, 6, 2)]  # SO_KEEPALIVE, TCP_KEEPIDLE, _KEEPINTVL, _KEEPCNT
        self.assertEqual(self.cut_off(options, [1, 1, 1, 2, 0], ""), "ECONNRESET")

    def test_a_user_timeout_of_an_application_behind_a_decline(self):
        self.assertEqual(self.cut_off([(6, 18, 3000)], [0, 7200, 75, 9, 3000], "x"), "ECONNRESET")


if __name__ == "__main__":
    unittest.main()
