# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Both ends see each other's true addresses, ports and devices, and options of sockets work as without an agent.

Each scene is played without an agent, then twice with an agent on each node: its server is asked, then remembered.
"""
import json
import os
import re
import socket
import struct
import subprocess
import unittest

from base import TIME_ENOUGH, TwoNodes
from lab.basics import sh, wait_for

SO_MARK, SO_BINDTODEVICE, IP_TRANSPARENT, IP_MINTTL = 36, 25, 19, 21
IPV6_DSTOPTS, IPV6_MINHOPCOUNT = 59, 73
PAD_N = "0000010400000000"  # a destination options header: nothing but padding
RESET = [socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0).hex()]  # the port is free at once

# {"at": [address, port], "options": [[level, option, int or hex]]}. "who" is answered by the client's address.
SERVER = """
import json, socket, sys, threading
spec = json.loads(sys.argv[1])
s = socket.socket(socket.AF_INET6 if ':' in spec['at'][0] else socket.AF_INET); s.setsockopt(1, 2, 1)
for level, option, value in spec['options']:
    s.setsockopt(level, option, bytes.fromhex(value) if isinstance(value, str) else value)
s.bind(tuple(spec['at'])); s.listen(100); print('ready', flush=True)
def serve(c, accepted):
    try:
        if s.family == socket.AF_INET: c.setsockopt(0, 8, 1); c.setsockopt(0, 12, 1)  # IP_PKTINFO, IP_RECVTTL
        while data := c.recv(1000):
            seen = [accepted[:2], c.getpeername()[:2], c.getsockname()[:2]]
            packet = c.getsockopt(0, 9, 100).hex() if s.family == socket.AF_INET else ''  # IP_PKTOPTIONS
            tos = c.getsockopt(0, 1)
            c.sendall(json.dumps({'seen': seen, 'packet': packet, 'tos': tos}).encode() if data == b'who' else data)
    except OSError: pass
while True: threading.Thread(target=serve, args=s.accept(), daemon=True).start()
"""

# {"to": [address, port], "from": [address, port] or null, "options": as above, "late": options once it is in use,
# "hold": until stdin ends}.
CLIENT = """
import errno, json, socket, sys
spec, out = json.loads(sys.argv[1]), {}
try:
    c = socket.socket(socket.AF_INET6 if ':' in spec['to'][0] else socket.AF_INET); c.settimeout(15)
    for level, option, value in spec['options']:
        c.setsockopt(level, option, bytes.fromhex(value) if isinstance(value, str) else value)
    if spec['from']: c.bind(tuple(spec['from']))
    c.connect(tuple(spec['to'])); c.sendall(b'who'); out = json.loads(c.recv(1000))
    c.sendall(b'x' * 999); out.update(own=c.getsockname()[:2], peer=c.getpeername()[:2], error=None)
    if c.recv(999, 0x100) != b'x' * 999: out['error'] = 'not echoed'
    for level, option, value in spec['late']:
        c.setsockopt(level, option, bytes.fromhex(value))
        c.sendall(b'y' * 999)
        if c.recv(999, 0x100) != b'y' * 999: out['error'] = 'not echoed later'
except OSError as e: out['error'] = errno.errorcode.get(e.errno, str(e))
print(json.dumps(out), flush=True)
if spec['hold']: sys.stdin.read()
"""

# Sends 64 MiB in large pieces, and has them echoed.
STREAM = """
import hashlib, os, socket, sys, threading
c = socket.create_connection((sys.argv[1], 5000), 10); c.settimeout(10); print('ready', flush=True)
piece = os.urandom(1 << 20)
threading.Thread(target=lambda c=c: [c.sendall(piece) for _ in range(64)], daemon=True).start()
c = c.makefile('rb')
print('right' if all(c.read(1 << 20) == piece for _ in range(64)) else 'wrong', flush=True)
"""

# Two joined devices without a link header, tun0 in each namespace: each receives the packets that the other sends.
TUNNEL = """
import ctypes, fcntl, os, select, struct, sys
ends = []
for name in sys.argv[1:]:
    space = os.open('/run/netns/' + name, os.O_RDONLY)
    assert ctypes.CDLL(None).setns(space, 0x40000000) == 0
    tun = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', b'tun0', 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
    ends.append(tun)
print('ready', flush=True)
while True:
    for tun in select.select(ends, [], [])[0]:
        packet = os.read(tun, 65536)
        try: os.write(ends[1 - ends.index(tun)], packet)
        except OSError: pass
"""


def plain_ip(address):
    return address.removeprefix("::ffff:")


class Addresses(TwoNodes):
    # --- what the tests do -----------------------------------------------------------------------------
    def listen(self, ip="0.0.0.0", port=5000, options=(), node=None):
        self.program(node or self.b, SERVER, json.dumps({"at": [ip, port], "options": list(options)}), says="ready")

    def spec(self, ip=None, port=5000, own=None, options=(), late=(), hold=False):
        what = {"to": [ip or self.b.ip4, port], "from": own, "options": options, "late": late, "hold": hold}
        return json.dumps(what)

    def agreed(self, seen):
        """The connection as both ends report it, which must be the same; or the error."""
        if seen["error"]:
            return seen["error"]
        accepted, peer, own = [[plain_ip(ip), port] for ip, port in seen["seen"]]
        client = [plain_ip(seen["own"][0]), seen["own"][1]]
        server = [plain_ip(seen["peer"][0]), seen["peer"][1]]
        self.assertEqual((accepted, peer, own), (client, client, server))
        return client, server

    def connect_as(self, node=None, **how):
        done = (node or self.a).python(CLIENT, self.spec(**how))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.agreed(json.loads(done.stdout))

    def same(self, scene, path="smcd", **policy):
        plain = scene()
        self.start_agents(**{**TIME_ENOUGH, **policy})
        for what in ("asked", "remembered"):
            self.assertEqual(scene(), plain, what)
        if path:
            self.assertPath(self.a, path, at_least=2)
        else:
            self.assertEqual(self.a.agent.totals(), {})
        return plain

    def in_ss(self, node, *which):
        """(own, peer) of established connections that belong to Python programs."""
        lines = node.run(["ss", "-Htnp", "state", "established", *which]).stdout.splitlines()
        names = [re.sub(r"\[::ffff:([0-9.]+)\]", r"\1", line).split() for line in lines if "python3" in line]
        return [tuple(columns[2:4]) for columns in names]

    # --- names -----------------------------------------------------------------------------------------
    def names(self, target, listener):
        """For several connections at once: both ends, and ss at both ends, report the same addresses."""
        self.listen(listener)

        def scene():
            clients = [self.program(self.a, CLIENT, self.spec(ip=target, hold=True)) for _ in range(4)]
            seen = [self.agreed(json.loads(self.hear(client))) for client in clients]
            here, there = self.in_ss(self.a, "dport = :5000"), self.in_ss(self.b, "sport = :5000")
            self.assertEqual(sorted(here), sorted((peer, own) for own, peer in there))
            ports = {int(own.rsplit(":", 1)[1]) for own, _ in here}
            self.assertEqual(ports, {client[1] for client, _ in seen})
            for client in clients:
                client.communicate()
            wait_for("the server's sockets to go", lambda: not self.in_ss(self.b, "sport = :5000"))
            return {(client[0], *server) for client, server in seen}, len(ports)

        self.same(scene)
        self.assertPath(self.a, "smcd", at_least=8)
        self.assertPath(self.b, "smcd", at_least=8)

    def test_both_ends_and_ss_agree(self):
        self.names(self.b.ip4, "0.0.0.0")

    def test_both_ends_and_ss_agree_on_ipv6(self):
        self.names(self.b.ip6, "::")

    def test_both_ends_and_ss_agree_on_mapped_addresses(self):
        self.names("::ffff:" + self.b.ip4, "::")

    def test_both_ends_and_ss_agree_where_only_the_server_is_mapped(self):
        self.names(self.b.ip4, "::")

    def test_ports_that_the_client_has_bound(self):
        self.listen()
        self.listen("::", 5001, [[socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1]])
        how = {"options": [[socket.SOL_SOCKET, socket.SO_REUSEADDR, 1], RESET]}

        def scene():
            found = [self.connect_as(own=[self.a.ip4, 40000], **how) for _ in range(3)]
            found += [self.connect_as(own=["", 1000 + n], **how) for n in range(2)]
            found += [self.connect_as(ip=self.b.ip6, port=5001, own=["::", 40001], **how)]
            return found

        plain = self.same(scene)
        self.assertEqual([client[1] for client, _ in plain], [40000, 40000, 40000, 1000, 1001, 40001])
        self.assertPath(self.a, "smcd", at_least=12)

    def test_the_server_sees_the_device_and_the_hops(self):
        """The server reads them by IP_PKTOPTIONS."""
        self.listen()

        def packet():
            return json.loads(self.a.python(CLIENT, self.spec(options=[[0, socket.IP_TTL, 77]])).stdout)["packet"]

        index = int(sh("ip", "netns", "exec", self.b.netns, "cat", f"/sys/class/net/{self.b.device}/ifindex"))
        self.assertIn(struct.pack("i4s", index, socket.inet_aton(self.b.ip4)).hex(), self.same(packet))

    def test_the_server_reflects_the_clients_type_of_service(self):
        self.b.run(["sysctl", "-qw", "net.ipv4.tcp_reflect_tos=1"], check=True)
        self.listen()

        def tos():
            return json.loads(self.a.python(CLIENT, self.spec(options=[[0, socket.IP_TOS, 0x28]])).stdout)["tos"]

        self.assertEqual(self.same(tos), 0x28)

    # --- options of sockets ----------------------------------------------------------------------------
    def test_sockets_bound_to_devices(self):
        self.lab.link(self.a, self.b)
        to = [socket.SOL_SOCKET, SO_BINDTODEVICE]
        self.listen()
        bound = {"options": [[*to, self.a.device.encode().hex()]]}

        def scene():
            free, held = self.connect_as(ip=self.b.ip4), self.connect_as(ip=self.b.ip4, **bound)
            return free[0][0], free[1], held[0][0], held[1]

        self.same(scene)
        self.assertPath(self.a, "smcd", at_least=4)

    def test_listeners_that_are_bound_to_devices_or_marked(self):
        """The kernel routes their answers by device and mark, which a listener of the agent's does not have."""
        first = self.b.ip4
        self.lab.link(self.a, self.b)
        device = [socket.SOL_SOCKET, SO_BINDTODEVICE, self.b.device.encode().hex()]
        self.listen(options=[device])
        self.listen(options=[[socket.SOL_SOCKET, SO_MARK, 7]], port=5001)

        def scene():
            bound, marked = self.connect_as(ip=self.b.ip4), self.connect_as(ip=self.b.ip4, port=5001)
            return bound[0][0], bound[1], marked[0][0], marked[1], self.connect_as(ip=first)

        self.assertEqual(self.same(scene, path=None)[-1], "ECONNREFUSED")
        self.assertGreater(self.b.agent.decisions()["SMC_IN_BOUND"], 0)

    def test_a_transparent_client(self):
        foreign = "10.99.0.5"
        sh("ip", "-n", self.b.netns, "route", "add", foreign, "via", self.a.ip4)
        sh("ip", "-n", self.a.netns, "rule", "add", "to", foreign, "iif", self.a.device, "lookup", "100")
        sh("ip", "-n", self.a.netns, "route", "add", "local", foreign, "dev", "lo", "table", "100")
        self.listen()
        how = {"own": [foreign, 0], "options": [[socket.IPPROTO_IP, IP_TRANSPARENT, 1]]}

        def scene():
            client, server = self.connect_as(**how)
            return client[0], server

        self.assertEqual(self.same(scene)[0], foreign)

    def gtsm(self, listener, target, level, ttl, least):
        """Both ends accept packets from the next hop only (GTSM, RFC 5082)."""
        options = [[level, ttl, 255], [level, least, 255]]
        self.listen(listener, options=options)
        self.same(lambda: isinstance(self.connect_as(ip=target, options=options), tuple), path="smcd")

    def test_a_least_time_to_live(self):
        self.gtsm("0.0.0.0", self.b.ip4, socket.IPPROTO_IP, socket.IP_TTL, IP_MINTTL)

    def test_a_least_hop_limit(self):
        self.gtsm("::", self.b.ip6, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, IPV6_MINHOPCOUNT)

    def test_a_loopback_source_has_no_way_out(self):
        self.listen()
        self.assertEqual(self.same(lambda: self.connect_as(own=["127.0.0.1", 0]), path=None), "EINVAL")

    def test_sticky_destination_options(self):
        self.listen("::")
        how = {"ip": self.b.ip6, "options": [[socket.IPPROTO_IPV6, IPV6_DSTOPTS, PAD_N]]}
        self.assertEqual(self.same(lambda: self.connect_as(**how)[1], path=None), [self.b.ip6, 5000])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_HEADERS"], 2)

    def test_sticky_destination_options_of_a_listener(self):
        self.listen("::", options=[[socket.IPPROTO_IPV6, IPV6_DSTOPTS, PAD_N]])
        self.same(lambda: self.connect_as(ip=self.b.ip6)[1], path=None)
        self.assertEqual(self.b.agent.decisions()["SMC_IN_HEADERS"], 2)

    def test_destination_options_that_come_later(self):
        self.listen("::")
        how = {"ip": self.b.ip6, "late": [[socket.IPPROTO_IPV6, IPV6_DSTOPTS, PAD_N]]}
        self.same(lambda: self.connect_as(**how)[1])

    def test_packets_of_more_than_64_kib(self):
        """BIG TCP: such packets of IPv6 have a hop-by-hop header before the TCP header."""
        for node in (self.a, self.b):
            big = ["gso_max_size", "262144", "gro_max_size", "262144"]
            sh("ip", "-n", node.netns, "link", "set", node.device, *big)
        self.listen("::")
        program = self.program(self.a, STREAM, self.b.ip6, says="ready")
        self.assertEqual(self.hear(program), "right")
        self.start_agents()
        program = self.program(self.a, STREAM, self.b.ip6, says="ready")
        self.assertEqual(self.hear(program), "right")
        self.assertPath(self.a, "smcd")
        for node in (self.a, self.b):
            errors = node.run(["nstat", "-saz", "Ip6InHdrErrors"]).stdout.split("Ip6InHdrErrors")[1].split()[0]
            self.assertEqual(errors, "0")

    def test_a_mark_that_routes(self):
        """The server is reached by a route for marked packets only."""
        there = "10.99.0.2"
        sh("ip", "-n", self.b.netns, "addr", "add", f"{there}/32", "dev", "lo")
        sh("ip", "-n", self.a.netns, "rule", "add", "fwmark", "7", "lookup", "100")
        sh("ip", "-n", self.a.netns, "route", "add", there, "via", self.b.ip4, "table", "100")
        self.listen()
        marked = {"ip": there, "options": [[socket.SOL_SOCKET, SO_MARK, 7]]}

        def scene():
            client, server = self.connect_as(**marked)
            return client[0], server, self.connect_as(ip=there)

        self.assertEqual(self.same(scene), (self.a.ip4, [there, 5000], "ENETUNREACH"))

    # --- devices and ends ------------------------------------------------------------------------------
    def tunnel(self):
        """Joins the nodes by tun0, a device as a VPN has it."""
        tunnel = subprocess.Popen(
            ["/usr/bin/python3", "-c", TUNNEL, self.a.netns, self.b.netns], stdout=subprocess.PIPE, text=True
        )
        self.lab.processes.append(tunnel)
        self.addCleanup(tunnel.stdout.close)
        self.assertEqual(tunnel.stdout.readline(), "ready\n")
        for host, node in enumerate((self.a, self.b), start=1):
            sh("ip", "-n", node.netns, "addr", "add", f"10.88.0.{host}/24", "dev", "tun0")
            sh("ip", "-n", node.netns, "addr", "add", f"fd88::{host}/64", "dev", "tun0", "nodad")
            sh("ip", "-n", node.netns, "link", "set", "tun0", "up")

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "there is no /dev/net/tun")
    def test_what_leaves_by_a_vpn_stays_there_unless_a_rule_says_otherwise(self):
        self.tunnel()
        self.listen("::")
        self.start_agents(**TIME_ENOUGH)
        for ip in ("10.88.0.2", "fd88::2"):
            self.connect_as(ip=ip)
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_LIMITED"], 2)
        self.assertEqual(self.a.agent.totals(), {})
        self.connect_as()  # by the other device
        self.assertPath(self.a, "smcd")
        self.a.agent.stop()
        self.a.start_agent(policy={"past_limits": True}, **TIME_ENOUGH)
        self.connect_as(ip="10.88.0.2")
        self.assertEqual(self.b.agent.decisions()["SMC_IN_LIMITED"], 1)
        self.assertEqual(self.a.agent.totals(), {})

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "there is no /dev/net/tun")
    def test_a_device_without_a_link_header(self):
        self.tunnel()
        self.listen("::")

        def scene():
            ends = self.connect_as(ip="10.88.0.2"), self.connect_as(ip="fd88::2"), self.connect_as()
            return [(client[0], server) for client, server in ends]

        self.same(scene, policy={"past_limits": True})
        for node in (self.a, self.b):
            status = node.agent.status()["namespaces"][0]
            self.assertTrue(status["ipv4"] and status["ipv6"], status)
            self.assertIn("tun0", status["devices"])
        self.assertPath(self.a, "smcd", at_least=6)

    def test_loopback_is_plain_and_explained(self):
        rule = {"name": "all", "action": "allow", "remotes": ["0.0.0.0/0", "::/0"]}
        targets = ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", self.a.ip4, self.a.ip6]
        self.listen("::", node=self.a)
        self.same(
            lambda: [self.connect_as(ip=ip)[1] for ip in targets],
            path=None,
            policy={"default": "deny", "rules": [rule]},
        )
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_ASKED"], 0)
        for ip in targets:
            text = self.a.agent.ctl("explain", f"[{ip}]:5000" if ":" in ip else f"{ip}:5000").stdout
            self.assertIn(
                "the server's address is a loopback address, or one of the client's own network namespace", text, ip
            )

    def test_two_pods_of_one_agent(self):
        pods = [self.lab.node(name) for name in ("one", "two")]
        for number, pod in enumerate(pods):
            pod.apps = f"{self.a.cgroup}/pods/{number}"
            os.makedirs(pod.apps)
        self.lab.link(*pods)
        one, two = pods
        self.listen("::", node=two)
        targets = [two.ip4, two.ip6]

        def scene():
            return [self.connect_as(node=one, ip=ip)[1] for ip in targets]

        plain = scene()
        self.start_agents()
        one.popen(["sleep", "infinity"])
        wait_for("the pods' namespaces", lambda: self.a.agent.prepared() == 3)
        for _ in range(2):
            self.assertEqual(scene(), plain)
        decisions = self.a.agent.decisions()
        self.assertEqual((decisions["SMC_IN_SAME_AGENT"], decisions["SMC_ANSWER_PLAIN"]), (4, 4))
        self.assertEqual(self.a.agent.totals(), {})


if __name__ == "__main__":
    unittest.main()
