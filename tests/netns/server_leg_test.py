# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The server's leg begins on the server's host, where a connection of plain TCP is only answered.

Rules of that host for connections that begin there must not harm a client.
"""
import json
import unittest

from rogue import proposal
from scenes import Scenes

PROXY = """
import socket, time
s = socket.create_server(('::', 15001), family=socket.AF_INET6, dualstack_ipv6=True); print('ready', flush=True)
while True: c, _ = s.accept(); time.sleep(0.1); c.close()
"""

# Connects from a port, and says whether the server's host can give that port to a service meanwhile.
HOLD_PORT = """
import socket, struct, sys
c = socket.socket(); c.settimeout(15); c.setsockopt(1, 2, 1); c.setsockopt(1, 13, struct.pack('ii', 1, 0))
c.bind(('', 50051)); c.connect((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('connected', flush=True)
sys.stdin.readline()
"""
ONLY_ANSWERS = ["policy drop", "meta l4proto != tcp accept", "ct state established accept"]
FIRST, SECOND = "10.77.0.50", "10.77.0.51"  # addresses of hand-made clients


class ServerLeg(Scenes):
    def leg_is_lost(self, **how):
        """The first connection goes on as plain TCP, nobody waits for long, and the listener's clients are not answered
        with option 254 for a while."""
        self.nobody_waits(self.same(lambda: self.outcome(**how), "ok"))
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_declined"): 1})
        self.assertEqual(self.b.agent.totals(), {("fallback", "server_refused"): 1})
        self.is_not_answered(SECOND)

    def is_not_answered(self, own_ip):
        """This client speaks to the application itself."""
        seen = self.client_without_an_agent(own_ip, send=[b"hello".hex()], close="fin")
        self.assertEqual((seen["received"], seen["ended"]), (b"hello".hex(), "fin"))
        self.assertEqual(self.b.agent.decisions()["SMC_IN_NO_LEG"], 1)

    def client_without_an_agent(self, own_ip, **script):
        process = self.raw(self.a, own_ip, "client", self.b.ip4, 5000, json.dumps({"listen_s": 60, **script}))
        (seen,) = self.raw_results(process)
        return seen

    def test_a_proxy_takes_connections_that_begin_at_the_server(self):
        """As a sidecar's redirection of outgoing connections does, on a port that it does not serve itself."""
        self.with_a_proxy(self.b.ip4)

    def test_a_proxy_takes_them_over_ipv6(self):
        self.with_a_proxy(self.b.ip6)

    def with_a_proxy(self, ip):
        self.serve(ip="::")
        self.program(self.b, PROXY, says="ready")
        self.nft(self.b, nat_output=['oifname != "lo" meta l4proto tcp redirect to :15001'])
        self.leg_is_lost(ip=ip)

    def test_a_translated_address(self):
        """Clients of an address that the host hides behind another one when it connects itself."""
        self.serve()
        self.b.run(["ip", "addr", "add", "10.77.0.9/32", "dev", self.b.device], check=True)
        self.nft(self.b, nat_postrouting=[f'oifname "{self.b.device}" masquerade'])
        self.leg_is_lost(ip="10.77.0.9")
        self.assertEqual(self.b.agent.decisions()["SMC_LEG_TRANSLATED"], 1)

    def test_only_one_client_without_an_agent_is_reset(self):
        self.serve()
        self.nft(self.b, output=ONLY_ANSWERS)
        self.b.start_agent(smc={"step_timeout_ms": 1000})
        self.assertEqual(self.client_without_an_agent(FIRST, send=[proposal()])["ended"], "rst")
        self.assertPath(self.b, "refused", "server_refused")
        self.assertIn("this host drops, redirects or translates packets of the leg", self.b.agent_log())
        self.is_not_answered(SECOND)
        self.assertEqual(sum(self.b.agent.totals().values()), 1)

    def test_an_answer_to_the_leg_is_dropped(self):
        self.serve()
        self.nft(self.b, input=["policy drop", "meta l4proto != tcp accept", "tcp dport 5000 accept"])
        self.b.start_agent(smc={"step_timeout_ms": 1000})
        self.assertEqual(self.client_without_an_agent(FIRST, send=[proposal()])["ended"], "rst")
        self.is_not_answered(SECOND)

    def test_ports_that_the_operator_has_reserved(self):
        self.serve()
        self.b.run(["sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=50000,50050-50052"], check=True)

        def scene():
            client = self.program(self.a, HOLD_PORT, self.b.ip4, says="connected")
            done = self.b.python("import socket; socket.socket().bind(('', 50051))")
            self.tell(client, "end")
            client.wait(10)
            return done.returncode

        self.same(scene, 0, "smcd")


if __name__ == "__main__":
    unittest.main()
