# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A client uses a port again while the server's application still has its socket of the connection before. TCP answers
the new SYN from that old socket by a challenge ACK, which the client's kernel answers by a reset; the next SYN is for
the listener (RFC 9293 section 3.10.7.4, RFC 5961)."""
import json
import signal
import unittest

from base import TwoNodes
from lab.basics import wait_for

# Answers "hello" on each connection, reads nothing after that, and keeps all its sockets.
KEEPER = """
import socket, threading
s = socket.create_server(('', 5000), backlog=100)
print('ready', flush=True)
kept = []
def first(c):
    kept.append(c)
    if c.recv(5) == b'hello': c.sendall(b'hello')
while True: threading.Thread(target=first, args=(s.accept()[0],), daemon=True).start()
"""

# Connects from one port. Lines of stdin: "fill N" sends N bytes, "close" and "reset" end the connection, "dial" makes
# the next one and prints what recv() returned, or the error.
CLIENT = """
import socket, struct, sys
def dial():
    c = socket.socket(); c.setsockopt(1, 2, 1); c.settimeout(10); c.bind(('', int(sys.argv[2])))
    c.connect((sys.argv[1], 5000)); c.sendall(b'hello'); print(c.recv(5).decode(), flush=True)
    return c
c = dial()
for line in sys.stdin:
    what, *size = line.split()
    if what == 'fill': c.sendall(bytes(int(size[0]))); print('sent', flush=True)
    elif what == 'close': c.close(); print('ended', flush=True)
    elif what == 'reset': c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.close(); print('ended', flush=True)
    else:
        try: c = dial()
        except OSError as e: print(repr(e), flush=True)
"""


# Connects from a port once, and prints the answer or the name of the error.
ONCE = """
import socket, sys
c = socket.socket(); c.settimeout(20); c.bind(('', int(sys.argv[2])))
try: c.connect((sys.argv[1], 5000)); c.sendall(b'hello'); print(c.recv(5).decode(), flush=True)
except OSError as e: print(type(e).__name__, flush=True)
"""

# Answers "hello" and reads nothing more until it is told a line of stdin. Prints how many bytes it read then.
SLOW = """
import socket, sys
s = socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(1, 8, 4096); s.bind(('', 5001)); s.listen()
print('ready', flush=True); c, _ = s.accept(); c.sendall(c.recv(5)); sys.stdin.readline()
n = 0
while d := c.recv(65536): n += len(d)
print(n, flush=True)
"""

# Sends a SYN past the programs of its own device. Arguments: device, MAC, address and port of source and destination.
SYN = """
import socket, struct, sys
device, mac, source, sport, to, dport = sys.argv[1:]
def total(data):
    n = sum(struct.unpack(f'!{len(data) // 2}H', data))
    return ~((n & 0xffff) + (n >> 16)) & 0xffff
ends = socket.inet_aton(source) + socket.inet_aton(to)
ip = struct.pack('!BBHHHBBH', 0x45, 0, 40, 1, 0, 64, 6, 0) + ends
ip = ip[:10] + struct.pack('!H', total(ip)) + ip[12:]
tcp = struct.pack('!HHIIBBHHH', int(sport), int(dport), 12345, 0, 0x50, 2, 65535, 0, 0)
tcp = tcp[:16] + struct.pack('!H', total(ends + struct.pack('!HH', 6, 20) + tcp)) + tcp[18:]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.setsockopt(263, 20, 1); s.bind((device, 0))
s.send(bytes.fromhex(mac.replace(':', '')) + bytes(6) + b'\\x08\\x00' + ip + tcp)
"""


class PortAgain(TwoNodes):
    def setUp(self):
        super().setUp()
        for node in (self.a, self.b):
            node.run(["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2"], check=True)
        self.program(self.b, KEEPER, says="ready")

    def client_is_gone(self, port):
        """The client's kernel knows nothing of the connection any more: its FIN-WAIT-2 is over."""
        sockets = ["ss", "-Htan", "sport", "=", f":{port}"]
        wait_for("the client's socket to go", lambda: not self.a.run(sockets).stdout)

    def forgotten(self, port):
        """The agents know nothing of the connection any more either, nor do their programs."""
        self.client_is_gone(port)
        wait_for("the connection to end", lambda: not any(node.agent.connections() for node in (self.a, self.b)))
        wait_for("the hairpins to go", lambda: not any(self.table(node, "smc_hairpins") for node in (self.a, self.b)))

    def again(self, port, *lines, before=lambda port: None, plain=False):
        """The answer to a second connection from the same port, after these lines. `plain`: it does not ask for SMC."""
        client = self.program(self.a, CLIENT, self.b.ip4, port, says="hello")
        for line in lines:
            self.tell(client, line)
            self.assertIn(self.hear(client), ("sent", "ended"))
        before(port)
        if plain:
            client = self.program(self.a, CLIENT, self.b.ip4, port, cgroup=self.lab.cgroup)
        else:
            self.tell(client, "dial")
        return self.hear(client)

    def test_after_a_close_that_the_server_has_not_answered(self):
        """The server's socket is in CLOSE-WAIT, for as long as its program likes."""
        self.assertEqual(self.again(7000, "close", before=self.client_is_gone), "hello")  # TCP
        self.start_agents()
        self.assertEqual(self.again(7001, "close", before=self.forgotten), "hello")
        self.assertEqual(self.again(7002, "close", before=self.forgotten, plain=True), "hello")

    def test_a_challenge_ack_passes_every_device_of_a_stack(self):
        """The server's leg is still there, because its application does not read, and the client's socket is not."""
        self.use_bridge(self.b)
        self.start_agents()
        self.assertEqual(self.again(7001, "fill 400000", "reset"), "hello")
        self.assertEqual(self.again(7002, "fill 400000", "reset", plain=True), "hello")

    def queued(self, port):
        """Bytes that the client's leg has not read, and bytes of the client that the leg has not acknowledged."""
        leg = ["dst", self.b.ip4, "and", "dport", "=", ":5001", "and", "sport", "!=", f":{port}"]
        lines = [self.a.run(["ss", "-Htn", *which]).stdout.splitlines() for which in (leg, ["sport", "=", f":{port}"])]
        return max(int(line.split()[1]) for line in lines[0]), sum(int(line.split()[2]) for line in lines[1])

    def resets(self):
        """How many resets the client's kernel has sent."""
        names, values = [
            s.split() for s in self.a.run(["cat", "/proc/net/snmp"]).stdout.splitlines() if s[:4] == "Tcp:"
        ]
        return int(values[names.index("OutRsts")])

    def test_a_syn_takes_nothing_from_a_leg_that_has_not_read_all(self):
        """The client has closed and its socket is gone. Its leg still has bytes, because the server reads late. Anybody
        may send a SYN with these ports."""
        self.start_agents()
        server, port = self.program(self.b, SLOW, says="ready"), 7000
        client = self.program(self.a, CLIENT.replace("5000", "5001"), self.b.ip4, port, says="hello")
        sent = 0
        while not self.queued(port)[0]:
            self.tell(client, "fill 4096")
            self.assertEqual(self.hear(client), "sent")
            sent += 4096
        wait_for("all to be acknowledged", lambda: self.queued(port)[1] == 0)
        self.tell(client, "close")
        self.client_is_gone(port)
        (link,) = json.loads(self.a.run(["ip", "-j", "link", "show", "dev", self.a.device], check=True).stdout)
        before = self.resets()
        self.b.python(SYN, self.b.device, link["address"], self.b.ip4, 5001, self.a.ip4, port, check=True)
        wait_for("the kernel's answer, that there is no such connection", lambda: self.resets() > before)
        wait_for("the agent to end what it was told to end", lambda: not self.table(self.a, "smc_half_open"))
        self.tell(server, "read")
        self.assertEqual(int(self.hear(server)), sent)

    def test_a_forged_syn_while_the_agents_talk(self):
        """It takes the leg from the server's application. The client hears that, and is not left waiting."""
        patient = {"fallback": {"budget_ms": 30000}, "smc": {"step_timeout_ms": 60000}, "times": {"stale_ms": 60000}}
        self.start_agents(**patient)
        self.program(self.a, CLIENT, self.b.ip4, 7000, says="hello")
        self.b.agent.send_signal(signal.SIGSTOP)
        client = self.program(self.a, ONCE, self.b.ip4, 7001)
        wait_for("the agents to talk", lambda: len(self.a.agent.connections(5000)) == 2)
        self.a.agent.send_signal(signal.SIGSTOP)
        self.b.agent.send_signal(signal.SIGCONT)
        wait_for("the server's leg", lambda: self.b.agent.decisions()["SMC_LEG_JOINED"] == 2)
        (link,) = json.loads(self.b.run(["ip", "-j", "link", "show", "dev", self.b.device], check=True).stdout)
        self.a.python(SYN, self.a.device, link["address"], self.a.ip4, 7001, self.b.ip4, 5000, check=True)
        wait_for("the SYN to be heard", lambda: self.b.agent.decisions()["SMC_IN_TUPLE_REUSED"])
        self.a.agent.send_signal(signal.SIGCONT)
        self.assertEqual(self.hear(client), "ConnectionResetError")

    def test_after_a_reset_that_a_late_reader_has_not_been_told(self):
        """What the client had sent before it waits for room at the server, and the reset waits behind it."""
        self.assertEqual(self.again(7000, "fill 400000", "reset"), "hello")  # TCP
        self.start_agents()
        self.assertEqual(self.again(7001, "fill 400000", "reset"), "hello")
        self.assertEqual(self.again(7002, "fill 400000", "reset", plain=True), "hello")


if __name__ == "__main__":
    unittest.main()
