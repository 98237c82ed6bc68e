# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections within a node are TCP, and tuned: two pods of one agent, and lo."""
import json
import re
import unittest

from base import TwoPods
from lab.basics import wait_for

# The tuning of a socket: its congestion control, and how much of its queue may be unsent (0: all).
LIKE = """
import json, socket, sys
def like(s): return [s.getsockopt(6, 13, 16).split(b'\\0')[0].decode(), s.getsockopt(6, 25) & 0xffffffff]
def made(ip, choices):
    s = socket.socket(socket.AF_INET6 if ':' in ip else socket.AF_INET)
    s.settimeout(10); s.setsockopt(1, 2, 1)
    for option, value in choices: s.setsockopt(6, option, value.encode() if isinstance(value, str) else value)
    return s
"""
# Answers with the tuning of the accepted socket, and then echoes. A client that gives up its socket resets it.
SERVER = """
s = made(sys.argv[1], json.loads(sys.argv[3])); s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(64); s.settimeout(None)
print('ready', flush=True)
while True:
    c, _ = s.accept()
    try:
        c.sendall(json.dumps(like(c)).encode().ljust(100))
        while d := c.recv(65536): c.sendall(d)
    except ConnectionResetError: pass
    c.close()
"""
CLIENT = """
c = made(sys.argv[1], json.loads(sys.argv[3])); c.connect((sys.argv[1], int(sys.argv[2])))
theirs = b''
while len(theirs) < 100: theirs += c.recv(100)
print(json.dumps([like(c), json.loads(theirs)]), flush=True)
for _ in sys.stdin: pass
c.sendall(bytes(60000)); c.shutdown(1)
got = 0
while d := c.recv(65536): got += len(d)
print(got)
"""
BBR, RENO = "bbr", "reno"
LONG, SHORT = 0, 16384
CONGESTION, LOWAT = 13, 25  # of TCP_


class Local(TwoPods):
    def default(self, control):
        """Sets the default congestion control in both pods."""
        for pod in (self.one, self.two):
            pod.run(["sysctl", "-qw", f"net.ipv4.tcp_congestion_control={control}"], check=True)

    def serve_on(self, ip, choices=(), node=None, port=5000):
        self.program(node or self.two, LIKE + SERVER, ip, port, json.dumps(choices), says="ready")

    def client(self, ip, choices=(), node=None, port=5000, meanwhile=lambda: None):
        """An established connection, and the tuning of its ends: client, server."""
        client = self.program(node or self.one, LIKE + CLIENT, ip, port, json.dumps(choices))
        meanwhile()
        return client, json.loads(self.hear(client))

    def ends(self, *where, **more):
        client, found = self.client(*where, **more)
        out, _ = client.communicate(timeout=20)
        self.assertEqual(out, "60000\n")
        return found

    def test_pods_of_a_node_are_not_paced(self):
        self.default(BBR)
        self.start()
        self.serve_on("::")
        for ip in (self.two.ip4, self.two.ip6, f"::ffff:{self.two.ip4}"):
            self.assertEqual(self.ends(ip), [[RENO, LONG], [RENO, LONG]], ip)
        decisions = self.a.agent.decisions()
        self.assertEqual((decisions["SMC_LOCAL_PAIR"], decisions["SMC_TUNED"]), (3, 6))
        self.assertEqual(self.table(self.a, "smc_pairs"), [])

    def test_pods_are_found_where_nothing_is_asked_of_others(self):
        self.default(BBR)
        self.start(local={"smcd": False})
        self.serve_on("::")
        self.assertEqual(self.ends(self.two.ip4), [[RENO, LONG], [RENO, LONG]])
        self.serve_on(self.b.ip4, node=self.b)
        self.assertEqual(self.ends(self.b.ip4, node=self.a), [[BBR, LONG], [BBR, LONG]])
        decisions = self.a.agent.decisions()
        self.assertEqual([decisions[d] for d in ("SMC_OUT_ASKED", "SMC_OUT_NO_DEVICE", "SMC_LOCAL_PAIR")], [0, 2, 1])

    def test_through_an_address_that_is_translated(self):
        self.default(BBR)
        self.start()
        self.serve_on("0.0.0.0")
        self.assertEqual(self.ends(self.translate()), [[RENO, LONG], [RENO, LONG]])

    def test_with_syn_cookies(self):
        self.default(BBR)
        self.two.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2"], check=True)
        self.start()
        self.serve_on("0.0.0.0")
        self.assertEqual(self.ends(self.two.ip4), [[RENO, LONG], [RENO, LONG]])

    def test_what_an_application_chose_stays(self):
        self.default(BBR)
        self.start()
        self.serve_on("0.0.0.0", [[CONGESTION, BBR]])
        self.serve_on("127.0.0.1", [[CONGESTION, BBR], [LOWAT, 4096]], node=self.one)
        chosen = [[CONGESTION, BBR], [LOWAT, 9999]]
        self.assertEqual(self.ends(self.two.ip4, chosen), [[BBR, 9999], [BBR, LONG]])
        self.assertEqual(self.ends("127.0.0.1", chosen), [[BBR, 9999], [BBR, 4096]])
        self.assertEqual(self.a.agent.decisions()["SMC_TUNED"], 0)

    def test_a_system_that_does_not_pace_is_left_as_it_is(self):
        self.default(RENO)
        self.start()
        self.serve_on("0.0.0.0")
        self.assertEqual(self.ends(self.two.ip4), [[RENO, LONG], [RENO, LONG]])
        self.assertEqual(self.a.agent.decisions()["SMC_TUNED"], 0)

    def test_over_lo(self):
        self.default(BBR)
        self.start()
        self.serve_on("::", node=self.one)
        for ip in ("127.0.0.1", "::1", self.one.ip4, self.one.ip6):
            self.assertEqual(self.ends(ip), [[RENO, LONG], [RENO, LONG]], ip)

    def test_over_lo_by_the_route_only(self):
        """The address is this namespace's own, but is translated to that of another node."""
        self.default(BBR)
        self.start()
        elsewhere = self.lab.node("elsewhere")
        self.lab.link(self.one, elsewhere)
        self.serve_on("0.0.0.0", node=elsewhere)
        self.one.run(["ip", "addr", "add", "10.98.0.1/32", "dev", "lo"], check=True)
        rules = f"""
table ip t {{
  chain out {{ type nat hook output priority -100; ip daddr 10.98.0.1 dnat to {elsewhere.ip4}; }};
  chain post {{ type nat hook postrouting priority 100; ip daddr {elsewhere.ip4} masquerade; }};
}}"""
        self.one.run(["nft", rules], check=True)
        # As over a wire, the answer comes while connect() sleeps.
        first = "table ip t { chain c { type filter hook prerouting priority 0; tcp dport 5000 counter drop; }; }"
        elsewhere.run(["nft", first], check=True)

        def answer():
            asked = ["nft", "list", "ruleset"]
            wait_for("the SYN", lambda: re.search("packets [1-9]", elsewhere.run(asked).stdout))
            elsewhere.run(["nft", "flush", "ruleset"], check=True)

        self.assertEqual(self.ends("10.98.0.1", meanwhile=answer)[0], [BBR, LONG])
        self.assertEqual(self.a.agent.decisions()["SMC_TUNED"], 0)

    def test_a_syn_that_passes_through_the_node(self):
        """A pod connects through a namespace of this agent to a server that this agent does not serve."""
        self.default(BBR)
        self.start()
        outside = self.lab.node("outside")
        self.lab.link(self.two, outside)
        self.two.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        outside.run(["ip", "route", "add", "10.77.1.0/24", "via", outside.ip4.rsplit(".", 1)[0] + ".1"], check=True)
        self.one.run(["ip", "route", "add", outside.ip4, "via", "10.77.1.2"], check=True)
        self.serve_on("0.0.0.0", node=outside)
        self.serve_on("0.0.0.0")  # also if a local program listens on that port
        self.assertEqual(self.ends(outside.ip4)[0], [BBR, LONG])
        decisions = self.a.agent.decisions()
        self.assertGreater(decisions["SMC_IN_SAME_AGENT"], 0)
        self.assertEqual((decisions["SMC_LOCAL_PAIR"], decisions["SMC_TUNED"]), (0, 0))

    def test_the_policy_of_the_servers_end(self):
        rules = [
            {"name": "not-me", "action": "deny", "direction": "inbound", "cgroups": ["/pods/1"]},
            {"name": "all", "action": "allow"},
        ]
        self.default(BBR)
        self.start(policy={"rules": rules})
        self.serve_on("0.0.0.0")
        self.assertEqual(self.ends(self.two.ip4), [[RENO, LONG], [BBR, LONG]])

    def test_a_socket_that_is_used_again_is_as_it_was(self):
        self.default(BBR)
        self.start()
        self.serve_on("0.0.0.0", node=self.one)
        self.serve_on("0.0.0.0", node=self.b)
        elsewhere = self.lab.node("elsewhere")
        self.lab.link(self.one, elsewhere)
        self.serve_on("0.0.0.0", node=elsewhere)
        script = (
            LIKE
            + """
c = made('127.0.0.1', [])
for ip in sys.argv[1:]:
    c.connect((ip, 5000)); print(json.dumps(like(c)))
    import ctypes; ctypes.CDLL(None).connect(c.fileno(), bytes(16), 16)
"""
        )
        done = self.one.python(script, "127.0.0.1", elsewhere.ip4)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(found, [[RENO, LONG], [BBR, LONG]], done.stderr)

    def test_what_the_application_chose_stays_when_its_socket_is_used_again(self):
        self.default(BBR)
        self.start()
        self.serve_on("0.0.0.0", node=self.one)
        script = (
            LIKE
            + """
import ctypes
for before, behind in (([[25, 16384]], []), ([], [[13, 'cubic']])):
    c = made('127.0.0.1', before)
    c.connect(('127.0.0.1', 5000)); first = like(c)
    for option, value in behind: c.setsockopt(6, option, value.encode())
    ctypes.CDLL(None).connect(c.fileno(), bytes(16), 16)
    c.connect((sys.argv[1], 5000)); print(json.dumps([first, like(c)]))
"""
        )
        elsewhere = self.lab.node("elsewhere")
        self.lab.link(self.one, elsewhere)
        self.serve_on("0.0.0.0", node=elsewhere)
        done = self.one.python(script, elsewhere.ip4)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        wanted = [[[RENO, SHORT], [BBR, SHORT]], [[RENO, LONG], ["cubic", LONG]]]
        self.assertEqual(found, wanted, done.stderr)

    def test_other_nodes_are_as_they_were(self):
        """Connections to other nodes are not tuned, even if their agent's SYNs come here: these have another tag."""
        for node in (self.a, self.b):
            node.run(["sysctl", "-qw", f"net.ipv4.tcp_congestion_control={BBR}"], check=True)
        self.start_agents(smc={"ueids": ["BLUE"]})
        self.serve_on("0.0.0.0", node=self.b)
        without = self.lab.node("without")
        self.lab.link(self.a, without)
        self.serve_on("0.0.0.0", node=without)
        devices = lambda: self.a.agent.status()["namespaces"][0]["devices"]
        wait_for("the new device", lambda: self.a.device in devices())
        self.assertEqual(self.ends(without.ip4, node=self.a)[0], [BBR, LONG])
        self.assertEqual(self.a.agent.decisions()["SMC_TUNED"], 0)

    def test_off_by_rule_and_by_configuration(self):
        rules = [
            {"name": "lo", "action": "allow", "remotes": ["127.0.0.1/32"], "tune": False},
            {"name": "not-here", "action": "deny", "remotes": ["::1/128"]},
            {"name": "pods", "action": "allow", "remotes": ["10.0.0.0/8"], "ports": ["5001"], "tune": False},
            {"name": "all", "action": "allow"},
        ]
        self.default(BBR)
        self.start(policy={"rules": rules})
        self.serve_on("::", node=self.one)
        for port in (5000, 5001):
            self.serve_on("0.0.0.0", port=port)
        self.assertEqual(self.ends("127.0.0.1"), [[BBR, LONG], [BBR, LONG]])
        self.assertEqual(self.ends("::1"), [[BBR, LONG], [BBR, LONG]])
        self.assertEqual(self.ends(self.two.ip4, port=5001), [[BBR, LONG], [BBR, LONG]])
        self.assertEqual(self.ends(self.two.ip4), [[RENO, LONG], [RENO, LONG]])
        self.a.agent.stop()
        self.a.start_agent(local={"tune": False})
        wait_for("the pods' namespaces", lambda: self.a.agent.prepared() == 3)
        self.assertEqual(self.ends(self.two.ip4), [[BBR, LONG], [BBR, LONG]])
        self.assertEqual(self.ends(self.one.ip4), [[BBR, LONG], [BBR, LONG]])

    def test_what_smcctl_shows(self):
        self.default(BBR)
        self.start()
        self.serve_on("0.0.0.0")
        client, _ = self.client(self.two.ip4)
        tuned = lambda: [c for c in self.a.agent.connections() if c["path"] == "tuned"]
        wait_for("both ends", lambda: {c["role"] for c in tuned()} == {"client", "server"}, 20)
        shown = tuned()
        self.assertEqual({(c["client"], c["server"]) for c in shown}, {(shown[0]["client"], f"{self.two.ip4}:5000")})
        self.assertIn("TCP tuned", self.a.agent.ctl("ss").stdout)
        self.assertNotIn("TCP tuned", self.a.agent.ctl("ss", "-D").stdout)
        client.communicate(timeout=20)
        wait_for("its end", lambda: not tuned(), 60)


if __name__ == "__main__":
    unittest.main()
