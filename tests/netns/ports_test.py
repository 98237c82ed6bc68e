# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Ports: those of ended connections are free again, and nearly all local ports are left to applications."""
import json
import signal
import sys
import time
import unittest

from greeting import Greeting
from lab.basics import sh, wait_for

# Serves one connection at a time, then at once binds again without SO_REUSEADDR. Prints how often that failed.
REBINDER = """
import socket, sys, time
failed = 0
for _ in range(50):
    s, tries = socket.socket(), 0
    while True:
        try: s.bind(('0.0.0.0', 5000)); break
        except OSError: tries += 1; assert tries < 10000; time.sleep(0.001)
    failed += tries > 0
    s.listen(); c, _ = s.accept(); s.close(); c.sendall(c.recv(10))
    assert c.recv(10) == b''; c.close()
print(failed)
"""
REBINDERS_CLIENT = """
import socket, sys
for _ in range(50):
    while (c := socket.socket()).connect_ex((sys.argv[1], 5000)): c.close()
    c.sendall(b'x'); c.recv(10); c.close()
"""

# Connects so often and keeps all connections. Prints how often connect() ended in which way. Arguments: address, count.
KEEPERS = """
import collections, errno, json, socket, sys
kept, ends = [], collections.Counter()
for _ in range(int(sys.argv[2])):
    c = socket.socket(); kept.append(c)
    try: c.connect((sys.argv[1], 5000)); c.sendall(b'tokn'); assert c.recv(100); ends['ok'] += 1
    except OSError as e: ends[errno.errorcode[e.errno]] += 1
print(json.dumps(ends))
"""

# Keeps connections from these ports. On a line of stdin it waits for the end of each, and connects from the same port
# again. Prints how many ended in which way. Arguments: address, ports.
ENDED_AND_AGAIN = """
import collections, errno, socket, struct, sys
def connected(port):
    c = socket.socket(); c.settimeout(5); c.setsockopt(1, 2, 1); c.setsockopt(1, 13, struct.pack('ii', 1, 0))
    c.bind(('', port)); c.connect((sys.argv[1], 5000)); c.sendall(b'tokn')
    while len(c.recv(100, socket.MSG_PEEK)) < 100: pass
    c.recv(100)
    return c
ports, ends = [int(port) for port in sys.argv[2:]], collections.Counter()
kept = [connected(port) for port in ports]
print('connected', flush=True); sys.stdin.readline()
for c, port in zip(kept, ports):
    try: ends[c.recv(1)] += 1
    except OSError as e: ends[errno.errorcode.get(e.errno, str(e))] += 1
    c.close()
    try: connected(port); ends['again'] += 1
    except OSError as e: ends['again: ' + errno.errorcode.get(e.errno, str(e))] += 1
print(dict(ends), flush=True)
"""

# Connects from each of these ports, one after the other, and closes first or last. Arguments: address, which, ports.
FROM_PORTS = """
import socket, sys
for port in map(int, sys.argv[3:]):
    c = socket.socket(); c.settimeout(10); c.setsockopt(1, 2, 1); c.bind(('', port)); c.connect((sys.argv[1], 5000))
    c.sendall(b'tokn'); got = 0
    while got < 100 or sys.argv[2] == 'last':
        data = c.recv(100)
        if not data: break
        got += len(data)
    assert got == 100; c.close()
"""

# Like foreign programs that replace the set of callbacks: BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, PASSIVE.
CLEAR_WHEN_ESTABLISHED = """
  __u32 op = ((struct bpf_sock_ops *)ctx)->op;
  if (op == 4 || op == 5) bpf_sock_ops_cb_flags_set(ctx, 0);
  return 1;"""


class Ports(Greeting):
    def time_waits(self, count, **spec):
        """TIME_WAITs that a connection leaves, at the client and at the server."""

        def there():  # their names, not their number: earlier ones may end meanwhile
            return [set(n.run(["ss", "-Htn", "state", "time-wait"]).stdout.splitlines()) for n in (self.a, self.b)]

        before = there()
        self.all_ok(count, count=count, **spec)
        state = ["ss", "-Htn", "state", "connected", "exclude", "time-wait"]
        wait_for("sockets to go", lambda: not any(n.run(state).stdout for n in (self.a, self.b)), 60)
        return [len(now - then) / count for now, then in zip(there(), before)]

    def as_many_time_waits(self, how, plain, **spec):
        """As many as with TCP: neither the CLC sockets nor the legs leave one."""
        self.greeter(how=how)
        self.assertEqual(self.time_waits(200, **spec), plain)
        self.start_agents()
        self.time_waits(1, **spec)  # a request; from then on the server is remembered
        for found, wanted in zip(self.time_waits(1000, **spec), plain):
            # Fewer, if a port was used again that the server's TCP still remembers: it counts once.
            self.assertLessEqual(found, wanted + 0.02)
        self.assertPath(self.a, "smcd", at_least=1000)

    def test_short_connections_that_the_client_ends_take_no_more_ports(self):
        self.as_many_time_waits("wait", [1, 0])

    def test_short_connections_that_the_server_ends_take_no_more_ports(self):
        self.as_many_time_waits("close", [0, 1], last=True)

    def test_few_ports_for_many_connections(self):
        """The server closes first, so its client may use the port again at once."""
        for node in (self.a, self.b):
            node.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40099"], check=True)
        self.greeter(how="close")
        self.all_ok(300, count=300, last=True)
        self.start_agents()
        self.all_ok(300, 2.8, count=300, last=True)  # one wait for the first retransmission is a known gap

    def kept(self, first, ports):
        """How connect() ends for one client after the other with so many local ports, if all keep their connections."""
        self.a.run(["sysctl", "-qw", f"net.ipv4.ip_local_port_range={first} {first + ports - 1}"], check=True)
        done = self.a.python(KEEPERS, self.b.ip4, ports + 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_local_ports_are_the_applications(self):
        """A connection over SMC takes two more of them, so only few are accelerated where there are few."""
        self.greeter()
        self.assertEqual(self.kept(40000, 40), {"ok": 40, "EADDRNOTAVAIL": 2})
        self.start_agents()
        self.assertEqual(self.kept(41000, 1), {"ok": 1, "EADDRNOTAVAIL": 2})
        self.assertEqual(self.a.agent.totals(), {("fallback", "local_ports"): 1})
        time.sleep(1.1)  # the agent looks at the range once a second
        self.assertEqual(self.kept(42000, 40), {"ok": 30, "EADDRNOTAVAIL": 12})
        self.assertEqual(self.a.agent.totals()[("smcd", "none")], 5)

    def used_before(self, *steps, above=None):
        """Ports that accelerated connections had: a plain connection that has one now blocks no other. `above`: a
        foreign sockops program, attached above applications and agents."""
        self.start_agents(bpf={"tc": "clsact"})
        for node in (self.a, self.b) if above else ():
            sh("bpftool", "cgroup", "attach", node.cgroup, "sock_ops", "pinned", above, "multi")
        self.greeter()
        used = {"own": list(range(41000, 41008))}
        self.all_ok(8, **used)
        self.all_ok(8, **used)
        self.assertPath(self.a, "smcd", at_least=16)
        for step in steps:
            step()
        self.all_ok(8, **used)

    def test_ports_used_before_by_a_client_that_is_plain_now(self):
        self.used_before(lambda: self.a.agent.stop())

    def test_ports_used_before_at_a_server_whose_agent_was_killed(self):
        self.used_before(lambda: self.b.agent.stop(signal.SIGKILL), lambda: self.a.agent.stop())

    def from_ports(self, which, *ports):
        done = self.a.python(FROM_PORTS, self.b.ip4, which, *map(str, ports))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ports_that_a_client_uses_again_while_it_remembers_them(self):
        """The time stamps of a leg differ from those of the leg before, which its TIME_WAIT remembers (PAWS)."""
        self.a.run(["sysctl", "-qw", "net.ipv4.tcp_tw_reuse=1"], check=True)
        self.greeter()
        self.start_agents()
        for _ in range(3):
            self.from_ports("first", *range(41000, 41016))
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 48})

    def stamps(self, *ports):
        """The current TCP time stamps of connections from these ports."""
        ask = (
            "import socket, sys\nfor port in sys.argv[2:]:\n"
            " c = socket.create_connection((sys.argv[1], 5000), 10, ('', int(port)))\n"
            " print(c.getsockopt(6, 24))  # TCP_TIMESTAMP\n c.sendall(b'tokn')\n while c.recv(100): pass"
        )
        return [int(line) for line in self.a.python(ask, self.b.ip4, *map(str, ports)).stdout.split()]

    def test_ports_that_a_server_remembers_of_plain_connections(self):
        """They also differ from the client's own, which a TIME_WAIT of the server remembers, and which no reset ends.
        If time stamps do not depend on ports, no other port helps."""
        self.b.run(["sysctl", "-qw", "net.ipv4.tcp_rfc1337=1"], check=True)
        ports = range(41000, 41016)
        self.greeter(how="close")
        stamps = self.stamps(40998, 40999)
        if abs(stamps[0] - stamps[1]) < 60_000:
            self.skipTest("time stamps do not depend on ports")
        self.from_ports("last", *ports)
        self.start_agents()
        self.from_ports("last", *ports)
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 16})

    def test_ports_of_connections_that_died_with_both_agents(self):
        self.start_agents()
        self.greeter()
        client = self.program(self.a, ENDED_AND_AGAIN, self.b.ip4, *range(41000, 41008), says="connected")
        self.assertPath(self.a, "smcd", at_least=8)
        for node in (self.a, self.b):
            node.agent.stop(signal.SIGKILL)
        self.tell(client, "go")
        self.assertEqual(self.hear(client), str({"ECONNRESET": 8, "again": 8}))

    def test_ports_used_before_where_no_callback_comes(self):
        clear = self.foreign("sockops", "sockops", CLEAR_WHEN_ESTABLISHED)
        stop = [lambda: self.b.agent.stop(signal.SIGKILL), lambda: self.a.agent.stop(signal.SIGKILL)]
        self.used_before(*stop, above=clear)

    def test_hairpins_are_swept_where_no_callback_comes(self):
        clear = self.foreign("sockops", "sockops", CLEAR_WHEN_ESTABLISHED)
        self.used_before(above=clear)
        wait_for(
            "the hairpins to be swept",
            lambda: not self.table(self.a, "smc_hairpins") and not self.table(self.b, "smc_hairpins"),
            15,
        )

    def test_ports_used_before_at_a_server_without_its_programs(self):
        delete = ["tc", "-n", self.b.netns, "qdisc", "del", "dev", self.b.device, "clsact"]
        self.used_before(lambda: self.a.agent.stop(), lambda: sh(*delete))

    def test_known_gap_a_rebind_without_reuse_waits(self):
        """The CLC socket holds the server's port until the connection has ended there too; then it is free."""

        def failed():
            server = self.b.popen(["/usr/bin/python3", "-c", REBINDER], stdout=-1, stderr=-1, text=True)
            done = self.a.python(REBINDERS_CLIENT, self.b.ip4, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr)
            out, err = server.communicate(timeout=60)
            self.assertEqual(server.returncode, 0, err)  # each bind() succeeds in the end
            return int(out)

        plain, found = self.known_gap(failed)
        print(f"{self._testMethodName}: of 50 fail {plain} with TCP, {found} here", file=sys.stderr)
        self.assertPath(self.a, "smcd", at_least=25)


if __name__ == "__main__":
    unittest.main()
