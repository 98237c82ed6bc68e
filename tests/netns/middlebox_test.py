# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A box between two nodes that takes option 254 out of packets of the handshake, or drops those that have it: in one
direction or both. Applications connect as they do with plain TCP and the same box, and the box is remembered."""
import json
import unittest

from base import TwoNodes

SYN, SYNACK = "tcp flags & (syn|ack) == syn", "tcp flags & (syn|ack) == syn|ack"
WITHOUT = "reset tcp option 254"
DROPPED = "tcp option 254 exists drop"
CHANGED = "tcp option @254,16,32 set 0x61626364"  # its ExID

# A client that sends first, and prints the answer.
GREETER = """
import socket, sys, threading
s = socket.create_server(('0.0.0.0', int(sys.argv[1])), backlog=100); print('ready', flush=True)
def serve(c):
    c.sendall(b'welcome'); print(c.recv(100).decode(), flush=True); c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

GREETED = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); print(c.recv(100).decode(), flush=True)
c.sendall(b'thanks'); print(c.recv(100), flush=True)
"""

# Sends one byte, and waits for it to come back before it sends the next.
BYTE_BY_BYTE = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); c.setsockopt(6, 1, 1); got = b''
for byte in b'\\xe2\\xd4\\xc3 is not CLC':
    c.sendall(bytes([byte])); got += c.recv(1)
print(got, flush=True)
"""


# A client that sends nothing, ends its half, and still prints the answer.
LISTENER = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); c.shutdown(1)
print(c.recv(100).decode(), flush=True)
"""


CLOSED = """
import socket, sys
for _ in range(100):
    try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    except ConnectionRefusedError: print('refused')
"""

REFUSED = """
import errno, socket, sys
try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
except OSError as error: print(errno.errorcode[error.errno])
"""


class Middlebox(TwoNodes):
    def setUp(self):
        super().setUp()
        self.kinds = [
            (BYTE_BY_BYTE, 5000, "b'\\xe2\\xd4\\xc3 is not CLC'\n"),
            (GREETED, 5001, "welcome\nb''\n"),
            (LISTENER, 5002, "welcome\n"),
        ]
        self.box = self.lab.node("box")
        self.lab.link(self.a, self.box)
        near = self.box.ip4
        self.lab.link(self.box, self.b)
        self.a.run(["ip", "route", "add", self.b.ip4, "via", near], check=True)
        self.b.run(["ip", "route", "add", self.a.ip4, "via", self.box.ip4], check=True)
        self.box.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)

    def does(self, *rules, again=2):
        """Sets the rules of the box from now on. A rule takes out one option, and there may be two."""
        rules = "; ".join(rule for rule in rules for _ in range(again))
        table = f"table inet t {{ chain c {{ type filter hook forward priority 0; {rules}; }}; }}"
        self.box.run(["nft", f"flush ruleset; {table}"], check=True)

    def all_works(self):
        """Connections work whose server, or whose client, sends first."""
        for script, port, said in self.kinds:
            done = self.a.python(script, self.b.ip4, port, timeout=60)
            self.assertEqual((done.stdout, done.stderr), (said, ""))

    def begin(self, *rules):
        self.does(*rules)
        self.serve()
        self.greeter = self.program(self.b, GREETER, 5001, says="ready")
        self.program(self.b, GREETER, 5002, says="ready")
        self.all_works()  # plain TCP, with the same box
        self.assertEqual(self.hear(self.greeter), "thanks")
        self.start_agents()

    def works_through(self, *rules):
        """Each connection is tried when the box is not known yet, and again when it is."""
        self.begin(*rules)
        for _ in range(3):
            self.all_works()
            self.assertEqual(self.hear(self.greeter), "thanks")
            self.assertGreater(self.a.agent.decisions()["SMC_OUT_ASKED"], 0)
            for node in (self.a, self.b):
                node.agent.stop()
                node.start_agent()
            self.kinds.append(self.kinds.pop(0))
        self.all_works()
        self.all_works()
        totals = self.a.agent.totals() | self.b.agent.totals()
        self.assertEqual({path for path, _ in totals} - {"fallback"}, set(), totals)

    def test_answers_without_the_option(self):
        self.works_through(f"{SYNACK} {WITHOUT}")
        self.assertPath(self.b, "fallback", "answer_lost", at_least=1)
        decisions = self.b.agent.decisions()
        self.assertGreaterEqual(decisions["SMC_IN_NOT_NOW"], 5)  # a single answered request was enough

    def test_answers_with_the_option_are_dropped(self):
        self.works_through(f"{SYNACK} {DROPPED}")
        self.assertPath(self.b, "fallback", "answer_lost", at_least=1)

    def test_the_same_with_a_client_whose_syns_come_at_longer_and_longer_times(self):
        """The client's SYNs come like those of kernels before 6.5."""
        self.a.run(["sysctl", "-qw", "net.ipv4.tcp_syn_linear_timeouts=0"], check=True)
        self.begin(f"{SYNACK} {DROPPED}")
        self.all_works()
        self.assertPath(self.b, "fallback", "answer_lost", at_least=1)

    def test_the_same_with_a_client_that_asks_in_each_syn(self):
        """The client asks like net/smc."""
        self.does(f"{SYNACK} {DROPPED}")
        self.serve()
        self.b.start_agent()
        ip = f"{self.a.ip4[: self.a.ip4.rindex('.')]}.50"  # a client that is no kernel
        self.box.run(["sysctl", "-qw", "net.ipv4.conf.all.proxy_arp=1"], check=True)
        self.b.run(["ip", "route", "add", ip, "via", self.box.ip4], check=True)
        sent = b"no CLC".hex()
        script = {"send": [sent], "again_after": [1, 3], "close": "fin", "listen_s": 30}
        (seen,) = self.raw_results(self.raw(self.a, ip, "client", self.b.ip4, 5000, json.dumps(script)))
        self.assertEqual((seen["received"], seen["ended"]), (sent, "fin"))
        self.assertPath(self.b, "fallback", "answer_lost")

    def test_requests_without_the_option(self):
        self.works_through(f"{SYN} {WITHOUT}")

    def test_requests_with_the_option_are_dropped(self):
        self.works_through(f"{SYN} {DROPPED}")
        self.assertGreaterEqual(self.a.agent.decisions()["SMC_OUT_NOT_NOW"], 1)

    def test_requests_with_the_option_are_refused(self):
        """By a RST, which TCP takes for that of a closed port."""
        self.refuses("tcp reset")

    def test_requests_with_the_option_are_refused_by_icmp(self):
        self.refuses("icmpx type admin-prohibited")

    def refuses(self, how):
        self.works_through(f"{SYN} tcp option 254 exists reject with {how}")
        decisions = self.a.agent.decisions()
        self.assertGreaterEqual(decisions["SMC_ANSWER_RESET"], 1)
        self.assertGreaterEqual(decisions["SMC_OUT_NOT_NOW"], 1)

    def test_a_closed_port_is_closed(self):
        self.begin()
        self.assertEqual(self.a.python(CLOSED, self.b.ip4, 5999, timeout=60).stdout, "refused\n" * 100)
        decisions = self.a.agent.decisions()
        self.assertGreaterEqual(decisions["SMC_ANSWER_RESET"], 1)
        self.assertGreaterEqual(decisions["SMC_OUT_NOT_NOW"], 1)  # not each of them asks

    def test_a_host_that_refuses_all_is_refused(self):
        self.begin()
        self.does(f"{SYN} reject with icmpx type admin-prohibited", again=1)
        for port in (5999, 5999, 5998):
            refused = self.a.python(REFUSED, self.b.ip4, port, timeout=60)
            self.assertEqual(refused.stdout, "EHOSTUNREACH\n", refused.stderr)

    def test_neither_has_the_option(self):
        self.works_through(f"{SYN} {WITHOUT}", f"{SYNACK} {WITHOUT}")

    def test_requests_whose_option_is_changed(self):
        self.works_through(f"{SYN} {CHANGED}")

    def test_answers_whose_option_is_changed(self):
        self.works_through(f"{SYNACK} {CHANGED}")
        self.assertPath(self.b, "fallback", "answer_lost", at_least=1)

    def test_a_box_that_comes_when_the_server_is_known(self):
        """No request is sent to a remembered server: the box hits the CLC socket, and the application's SYN follows."""
        self.begin()
        self.all_works()
        self.assertPath(self.a, "smcd", at_least=2)
        self.does(f"{SYNACK} {WITHOUT}")
        self.all_works()
        self.all_works()

    def test_a_lost_answer_is_no_box(self):
        """The next answer comes through, and the connection is SMC."""
        self.begin()
        self.does(f"{SYNACK} tcp option 254 exists limit rate 1/hour burst 1 packets drop", again=1)
        seen = self.connect(timeout=30)
        self.assertTrue(seen["ok"], seen)
        self.assertPath(self.b, "smcd", at_least=1)


if __name__ == "__main__":
    unittest.main()
