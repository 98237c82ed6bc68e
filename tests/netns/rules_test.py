# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Rules of nft, cgroups and routers are neither bypassed nor broken: connections may do what plain TCP may.

Each scene is played without an agent, then with one on both nodes: the outcomes must be equal.
"""
import json
import os
import shutil
import subprocess
import time
import unittest

from lab.basics import sh, wait_for
from lab.nodes import cgroup_mount
from scenes import Scenes

VIP = "10.99.0.9"
NEIGHBOURS = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept"
LOST = "meta l4proto tcp counter name dropped"
SYN_ACK = "tcp flags & (syn | ack) == (syn | ack)"

KINDS4 = ["host-unreachable", "net-unreachable", "prot-unreachable", "port-unreachable", "net-prohibited"]
KINDS4 = ["icmp type " + kind for kind in (*KINDS4, "host-prohibited", "admin-prohibited")] + ["tcp reset"]
KINDS6 = ["icmpv6 type " + kind for kind in ("no-route", "admin-prohibited", "addr-unreachable", "port-unreachable")]
PORTS4, PORTS6 = range(5000, 5000 + len(KINDS4)), range(5100, 5100 + len(KINDS6))

# Accepts on all the ports; says nothing.
MANY_LISTENERS = """
import select, socket, sys
socks = [socket.create_server(('::', int(port)), family=socket.AF_INET6, dualstack_ipv6=True) for port in sys.argv[1:]]
print('ready', flush=True)
while True:
    for s in select.select(socks, [], [])[0]: s.accept()[0].close()
"""

# Connects to all at once, to 10.77.0.2 below port 5100, else to fd77:1::2.
# [{port: "ok" or the error}, the longest connect()]
MANY_CONNECTS = """
import errno, json, socket, sys, threading, time
out, times = {}, []
def connect(port):
    began = time.monotonic()
    try: c = socket.create_connection(('10.77.0.2' if port < 5100 else 'fd77:1::2', port), 15)
    except OSError as e: out[port] = errno.errorcode.get(e.errno, str(e)); return
    finally: times.append(time.monotonic() - began)
    try: c.recv(1); out[port] = 'ok'
    except OSError as e: out[port] = errno.errorcode.get(e.errno, str(e))
threads = [threading.Thread(target=connect, args=(int(port),)) for port in sys.argv[1:]]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps([out, max(times)]))
"""

STREAM = """
import socket, sys
s = socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(1, 7, 65536); s.bind((sys.argv[1], 5000)); s.listen()
print('ready', flush=True)
c, _ = s.accept(); c.recv(5)
while True: c.sendall(b'x' * 1000)
"""

# Writes how many bytes it has got to a file, at most 100 times a second, so that the count can be watched.
READ_SLOWLY = """
import os, socket, sys, time
c = socket.socket(); c.setsockopt(1, 8, 65536); c.connect((sys.argv[1], 5000)); c.sendall(b'start')
out, total = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY), 0
while True:
    data = c.recv(65536)
    if not data: break
    total += len(data); os.pwrite(out, b'%16d' % total, 0); time.sleep(0.01)
"""

# Sends each line of stdin to the server, and prints the answer. Arguments: its own address, the server's.
TALKER = """
import socket, sys
c = socket.socket(); c.bind((sys.argv[1], 0)); c.connect((sys.argv[2], 5000))
for line in sys.stdin: c.sendall(line.strip().encode()); print(c.recv(100).decode(), flush=True)
"""

# The verdict decides which TCP packets of IPv4 pass.
CGROUP_FILTER = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("cgroup/skb") int filter(struct __sk_buff *skb)
{
	unsigned char ip[20];

	return bpf_skb_load_bytes(skb, 0, ip, sizeof(ip)) || ip[0] >> 4 != 4 || ip[9] != 6 || (%s);
}
char _license[] SEC("license") = "GPL";
"""


# Ends its half first, reads all, and prints how many bytes there were.
HALF_CLOSER = """
import errno, socket
s = socket.create_server(('0.0.0.0', 5000)); print('ready', flush=True)
c, _ = s.accept(); c.shutdown(socket.SHUT_WR); got, end = 0, 'end'
try:
    while d := c.recv(65536): got += len(d)
except OSError as e: end = errno.errorcode[e.errno]
print(got, end, flush=True)
"""

# Sends much after the server's end.
UPLOADER = """
import socket, sys
c = socket.socket(); c.settimeout(20); c.bind((sys.argv[1], 0)); c.connect((sys.argv[2], 5000))
print('data' if c.recv(1) else 'end', flush=True)
for _ in range(100): c.sendall(bytes(10_000))
"""


class Rules(Scenes):
    # --- nft at the ends -------------------------------------------------------------------------------
    def behind_firewalls(self, *first):
        self.serve(ip="::")
        first = ["policy drop", "ct state invalid counter name invalid drop", *first, NEIGHBOURS]
        known = ["ct state established accept"]
        out = [f"ip daddr {self.b.ip4} tcp dport 5000 accept", f"ip6 daddr {self.b.ip6} tcp dport 5000 accept"]
        into = [f"ip saddr {self.a.ip4} tcp dport 5000 accept", f"ip6 saddr {self.a.ip6} tcp dport 5000 accept"]
        self.nft(self.a, input=[*first, *known, LOST], output=[*first, *known, *out, LOST])
        # rules for packets that leave the server have their own tests
        self.nft(self.b, input=[*first, *known, *into, LOST])
        self.same(lambda: [self.outcome(ip=ip) for ip in (self.b.ip4, self.b.ip6)], ["ok", "ok"], "smcd")
        self.assertPath(self.a, "smcd", at_least=4)
        for node in (self.a, self.b):
            self.assertEqual(self.counters(node), {"dropped": 0, "invalid": 0}, node.name)

    def test_firewalls_that_let_nothing_else_pass(self):
        self.behind_firewalls()

    def test_firewalls_that_let_lo_pass(self):
        self.behind_firewalls('meta iifname "lo" accept', 'meta oifname "lo" accept')

    def test_a_client_whose_firewall_knows_addresses_ports_and_devices(self):
        self.serve()
        rest = ["meta l4proto != tcp accept", LOST]
        ends = f"ip saddr {self.b.ip4} ip daddr {self.a.ip4} tcp sport 5000 accept"
        into = ["policy drop", f'iifname "{self.a.device}" {ends}', *rest]
        ends = f"ip saddr {self.a.ip4} ip daddr {self.b.ip4} tcp dport 5000 accept"
        out = ["policy drop", f'oifname "{self.a.device}" {ends}', *rest]
        self.nft(self.a, input=into, output=out)
        self.same(self.outcome, "ok", "smcd")
        self.assertEqual(self.counters(self.a)["dropped"], 0)

    def server_allows(self, **hooks):
        """Rules that do not fit the leg at the server: nothing is accelerated, but no client waits for that."""
        self.serve()
        self.nft(self.b, **hooks)
        self.nobody_waits(self.same(self.outcome, "ok"))
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_declined"): 1})
        self.assertEqual(self.b.agent.totals(), {("fallback", "server_refused"): 1})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NOT_NOW"], 1)

    def test_a_server_that_may_only_answer(self):
        self.server_allows(output=["policy drop", "meta l4proto != tcp accept", "ct state established accept"])

    def test_a_server_that_is_let_out_by_its_port(self):
        self.server_allows(output=["policy drop", "meta l4proto != tcp accept", "tcp sport 5000 accept"])

    def test_a_server_that_is_let_in_to_by_its_port(self):
        self.server_allows(input=["policy drop", "meta l4proto != tcp accept", "tcp dport 5000 accept"])

    def test_a_client_that_rejects_incoming_syns(self):
        """The leg's SYN is one, and is answered with a reset: the application's own SYN goes out at once."""
        self.serve()
        self.nft(self.a, input=["tcp flags & (fin|syn|rst|ack) == syn reject with tcp reset"])
        took = self.same(self.outcome, "ok")
        self.assertLess(max(took), 0.95)
        self.assertEqual(self.a.agent.totals(), {("fallback", "no_leg"): 1})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NOT_NOW"], 1)

    def test_a_client_whose_answer_to_the_leg_is_lost_once(self):
        """The leg waits until TCP sends the answer again: the application would ignore an answer of the server."""
        self.serve()
        self.nft(self.a, output=[f"{SYN_ACK} quota until 100 bytes counter name dropped drop"])
        self.same(self.outcome, "ok", "smcd")
        self.assertEqual(self.counters(self.a)["dropped"], 1)

    def test_a_client_that_may_not_answer_the_leg(self):
        """One connection fails, and says so soon; the next ones are plain TCP."""
        self.serve()
        self.nft(self.a, output=[f"{SYN_ACK} counter name dropped drop"])
        self.start_agents()
        self.assertEqual(self.outcome(timeout=60), "ECONNABORTED")
        self.assertEqual(self.outcome(), "ok")
        self.assertEqual(self.a.agent.totals(), {("refused", "no_leg"): 1})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NOT_NOW"], 1)
        self.assertGreater(self.counters(self.a)["dropped"], 1)

    def test_a_client_that_may_use_one_port_only(self):
        """Rules that name the client's port do not fit the agent's connections: plain TCP, without a wait."""
        self.serve()
        self.nft(self.b, input=["tcp dport 5000 tcp sport != 40000 drop"])
        script = """
import socket, struct, sys, time
c = socket.socket(); c.settimeout(4); c.setsockopt(1, 2, 1); c.setsockopt(1, 13, struct.pack('ii', 1, 0))
c.bind(('', 40000)); began = time.monotonic(); c.connect((sys.argv[1], 5000)); print(time.monotonic() - began)
c.sendall(b'x'); print(c.recv(1).decode())"""

        def scene():
            done = self.a.python(script, self.b.ip4)
            self.assertEqual(done.returncode, 0, done.stderr)
            took, answer = done.stdout.split()
            self.took = float(took)
            return answer

        self.nobody_waits(self.same(scene, "x"))

    def test_a_user_who_may_not_connect(self):
        self.serve()
        self.nft(self.a, output=["meta l4proto tcp meta skuid 1234 reject"])
        user = ["setpriv", "--reuid", "1234", "--clear-groups"]
        self.same(lambda: [self.outcome(*user), self.outcome()], ["ECONNREFUSED", "ok"], "smcd")
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})

    def test_a_user_who_alone_may_connect(self):
        """The agent's sockets of a connection are its application's user's, and so are they to the firewall."""
        self.serve()
        self.nft(self.a, output=["meta l4proto tcp meta skuid != 1234 reject"])
        user = ["setpriv", "--reuid", "1234", "--clear-groups"]
        self.same(lambda: [self.outcome(*user), self.outcome()], ["ok", "ECONNREFUSED"], "smcd")
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})

    def test_a_cgroup_that_may_not_connect(self):
        self.serve()
        locked = self.a.apps + "/locked"
        os.makedirs(locked)
        path = os.path.relpath(locked, "/sys/fs/cgroup")  # nft looks for it there
        level = len(os.path.relpath(locked, cgroup_mount()).split("/"))
        try:
            self.nft(self.a, output=[f'meta l4proto tcp socket cgroupv2 level {level} "{path}" reject'])
        except RuntimeError as error:
            self.skipTest(f"no socket cgroupv2 here: {error}")
        self.same(lambda: [self.outcome(cgroup=locked), self.outcome()], ["ECONNREFUSED", "ok"], "smcd")
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})

    def test_a_server_that_refuses_this_client(self):
        self.serve()
        self.nft(self.b, input=["ip saddr 10.77.0.1 tcp dport 5000 reject with tcp reset"])
        self.same(self.outcome, "ECONNREFUSED")
        self.assertEqual((self.a.agent.totals(), self.b.agent.totals()), ({}, {}))

    def test_a_server_that_drops_this_client(self):
        self.serve()
        self.nft(self.b, input=["ip saddr 10.77.0.1 tcp dport 5000 drop"])
        self.same(lambda: self.outcome(timeout=1.5), "timed out")

    def rejects(self, hook, node, remembered):
        """Every kind of refusal that nft has; errors are those of plain TCP, and come as soon."""
        ports = [str(port) for port in (*PORTS4, *PORTS6)]
        node.run(["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"], check=True)

        def errors():
            done = self.a.python(MANY_CONNECTS, *ports)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        def forbid():
            for4 = [f"ip daddr 10.77.0.2 tcp dport {p} reject with {kind}" for p, kind in zip(PORTS4, KINDS4)]
            for6 = [f"ip6 daddr fd77:1::2 tcp dport {p} reject with {kind}" for p, kind in zip(PORTS6, KINDS6)]
            self.nft(node, **{hook: for4 + for6})

        self.program(self.b, MANY_LISTENERS, *ports, says="ready")
        forbid()
        plain, longest = errors()
        self.assertNotIn("ok", plain.values())
        self.nft(node)
        self.start_agents()
        if remembered:
            self.assertEqual(set(errors()[0].values()), {"ok"})
            self.assertPath(self.a, "smcd", at_least=len(plain))
        forbid()
        seen, took = errors()
        self.assertEqual(seen, plain)
        self.assertLess(took, 0.95 if longest < 0.95 else longest + 0.95)

    def test_refusals_of_the_server_have_their_errors(self):
        self.rejects("input", self.b, False)

    def test_refusals_of_a_remembered_server_have_their_errors(self):
        self.rejects("input", self.b, True)

    def test_refusals_at_the_client_have_their_errors(self):
        self.rejects("output", self.a, True)

    # --- in the middle of a connection -----------------------------------------------------------------
    def stream_stops(self, stop, go):
        """With agents as without, bytes stop when the rule is added, and flow again when it is removed."""

        def once(name):
            server = self.program(self.b, STREAM, self.b.ip4, says="ready", stderr=subprocess.DEVNULL)
            count = f"{self.a.dir}/{name}"
            client = self.program(self.a, READ_SLOWLY, self.b.ip4, count)

            def received():
                with open(count) as file:
                    return int(file.read() or 0)

            def for_a_while():
                before = received()
                time.sleep(0.5)
                return received() - before

            wait_for("bytes", lambda: os.path.exists(count) and received() > 100000)
            stop()
            wait_for("the bytes that were under way", lambda: for_a_while() == 0, 15)
            self.assertEqual(for_a_while(), 0)
            go()
            wait_for("bytes again", lambda: for_a_while() > 0, 15)
            self.assertEqual((client.poll(), server.poll()), (None, None))
            for process in (client, server):
                process.kill()
                process.wait()

        once("plain")
        self.start_agents()
        once("smcd")
        self.assertPath(self.a, "smcd")

    def drop_all(self, node):
        both = ["ip saddr { 10.77.0.1, 10.77.0.2 } ip daddr { 10.77.0.1, 10.77.0.2 } drop"]
        self.nft(node, input=both, output=both)

    def test_a_drop_at_the_client_stops_the_bytes(self):
        self.stream_stops(lambda: self.drop_all(self.a), lambda: self.nft(self.a))

    def test_a_drop_at_the_server_stops_the_bytes(self):
        self.stream_stops(lambda: self.drop_all(self.b), lambda: self.nft(self.b))

    def test_a_device_that_goes_down_stops_the_bytes(self):
        device = ["ip", "-n", self.a.netns, "link", "set", self.a.device]
        self.stream_stops(lambda: sh(*device, "down"), lambda: sh(*device, "up"))

    # --- programs of cgroups ---------------------------------------------------------------------------
    def filtered(self, node, side, verdict, expected, path=None):
        """With a cgroup_skb program on the node's applications."""
        self.serve()
        source, pins = node.write("filter.c", CGROUP_FILTER % verdict), f"/sys/fs/bpf/{self.lab.tag}-filter"
        program, headers = source[:-1] + "o", f"-I/usr/include/{os.uname().machine}-linux-gnu"
        sh("clang-14", "-O2", "-target", "bpf", headers, "-c", source, "-o", program)
        os.makedirs(pins)
        sh("bpftool", "prog", "load", program, pins + "/filter", "type", "cgroup/skb")
        sh("bpftool", "cgroup", "attach", node.apps, side, "pinned", pins + "/filter")
        timeout = 1.5 if expected == "timed out" else 15
        self.same(lambda: self.outcome(timeout=timeout), expected, path)

    def test_an_egress_filter_that_allows_loopback_only(self):
        self.filtered(self.a, "egress", "ip[16] == 127", "timed out")

    def test_an_egress_filter_that_allows_the_network_only(self):
        self.filtered(self.a, "egress", "ip[16] == 10", "ok", "smcd")

    def test_an_ingress_filter_that_allows_the_server_only(self):
        self.filtered(self.a, "ingress", "ip[12] == 10 && ip[15] == 2", "ok", "smcd")

    def test_a_server_whose_filter_denies_the_client(self):
        self.filtered(self.b, "ingress", "!(ip[12] == 10 && ip[15] == 1)", "timed out")

    # --- addresses that are translated on the way ---------------------------------------------------------------
    def through_a_router(self, masquerade):
        """a - r - b, where r makes VIP:80 of b's port 5000."""
        r = self.lab.node("r")
        self.lab.link(self.a, r)
        own, near = self.a.ip4, r.ip4
        self.lab.link(r, self.b)
        sh("ip", "-n", self.a.netns, "route", "add", VIP, "via", near)
        sh("ip", "-n", self.b.netns, "route", "add", f"{own}/32", "via", r.ip4)
        r.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        self.nft(
            r,
            nat_prerouting=[f"ip daddr {VIP} tcp dport 80 dnat ip to {self.b.ip4}:5000"],
            nat_postrouting=[f'oifname "{r.device}" meta nfproto ipv4 masquerade'] if masquerade else [],
            forward=["ct state invalid counter name invalid drop"],
        )
        self.serve()

        def seen():
            outcome = self.connect(VIP, 80, timeout=4)
            self.assertTrue(outcome["ok"], outcome)
            return outcome["peer"], outcome["own"].split()[0], outcome["who"].split()[0]

        self.same(seen, (f"{VIP} 80", own, r.ip4 if masquerade else own), "smcd")
        self.assertEqual(self.counters(r)["invalid"], 0)

    def test_a_router_that_translates_the_servers_address(self):
        self.through_a_router(masquerade=False)

    def test_a_router_that_translates_both_addresses(self):
        self.through_a_router(masquerade=True)

    def test_a_client_that_translates_its_own_connections(self):
        sh("ip", "-n", self.a.netns, "route", "add", VIP, "via", self.b.ip4)
        self.nft(self.a, nat_output=[f"ip daddr {VIP} tcp dport 80 dnat ip to {self.b.ip4}:5000"])
        self.serve()
        self.same(lambda: self.outcome(ip=VIP, port=80), "ok", "smcd")

    def test_an_address_of_its_own_that_is_another_nodes(self):
        """Like a service address on lo: the route names lo, but the packets leave the node."""
        sh("ip", "-n", self.a.netns, "addr", "add", f"{VIP}/32", "dev", "lo")
        self.nft(
            self.a,
            nat_output=[f"ip daddr {VIP} tcp dport 80 dnat ip to {self.b.ip4}:5000"],
            nat_postrouting=[f"ip saddr {VIP} masquerade"],
        )
        self.serve()

        def seen():
            outcome = self.connect(VIP, 80, timeout=6)
            self.assertTrue(outcome["ok"], outcome)
            return outcome["peer"], outcome["own"].split()[0], outcome["who"].split()[0]

        self.same(seen, (f"{VIP} 80", VIP, self.a.ip4), "smcd")

    def test_a_connection_whose_port_is_translated_lives_on(self):
        """Its hairpin has another port than its leg, but is not swept."""
        sh("ip", "-n", self.a.netns, "addr", "add", f"{VIP}/32", "dev", "lo")
        self.nft(self.a, nat_postrouting=[f"ip saddr {VIP} masquerade random"])
        self.serve()
        self.start_agents()
        talker = self.program(self.a, TALKER, VIP, self.b.ip4)
        self.tell(talker, "one")
        self.assertEqual(self.hear(talker), "one")
        self.assertPath(self.a, "smcd")
        time.sleep(6)  # longer than an end that is not seen
        self.assertEqual(len(self.table(self.a, "smc_hairpins")), 2)
        self.tell(talker, "two")
        self.assertEqual(self.hear(talker), "two")

    def test_a_client_with_a_translated_port_goes_on_behind_the_servers_end(self):
        sh("ip", "-n", self.a.netns, "addr", "add", f"{VIP}/32", "dev", "lo")
        self.nft(self.a, nat_postrouting=[f"ip saddr {VIP} masquerade random"])
        server = self.program(self.b, HALF_CLOSER, says="ready")
        self.start_agents()
        client = self.a.python(UPLOADER, VIP, self.b.ip4)
        self.assertEqual((client.stdout, client.stderr), ("end\n", ""))
        self.assertEqual(self.hear(server), "1000000 end")
        self.assertPath(self.a, "smcd")

    def test_a_server_that_redirects_the_port(self):
        self.nft(self.b, nat_prerouting=["tcp dport 80 redirect to :5000"])
        self.serve()
        self.same(lambda: self.outcome(port=80), "ok")

    @unittest.skipUnless(shutil.which("conntrack"), "conntrack is not installed")
    def test_connection_tracking_sees_connections_that_are_well(self):
        for node in (self.a, self.b):
            count = ["ct state invalid counter name invalid"]
            self.nft(node, input=count, output=count)
        self.serve()
        self.same(lambda: [self.outcome() for _ in range(5)], ["ok"] * 5, "smcd")
        for node in (self.a, self.b):
            self.assertEqual(self.counters(node)["invalid"], 0, node.name)
            listed = node.run(["conntrack", "-L", "-p", "tcp", "--dport", "5000"], check=True).stdout.splitlines()
            self.assertGreaterEqual(len(listed), 15, node.name)  # five of each scene
            # on the way out the agent's requests are answered by a RST that connection tracking does not see
            self.assertEqual([line for line in listed if "UNREPLIED" in line], [], node.name)
            stats = node.run(["conntrack", "-S"], check=True).stdout
            self.assertNotRegex(stats, r"invalid=[1-9]|insert_failed=[1-9]|drop=[1-9]", node.name)


if __name__ == "__main__":
    unittest.main()
