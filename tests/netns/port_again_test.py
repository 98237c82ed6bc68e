# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A client uses a port again while the server's application still has its socket of the connection before. TCP answers
the new SYN from that old socket by a challenge ACK, which the client's kernel answers by a reset; the next SYN is for
the listener (RFC 9293 section 3.10.7.4, RFC 5961)."""
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

    def test_after_a_reset_that_a_late_reader_has_not_been_told(self):
        """What the client had sent before it waits for room at the server, and the reset waits behind it."""
        self.assertEqual(self.again(7000, "fill 400000", "reset"), "hello")  # TCP
        self.start_agents()
        self.assertEqual(self.again(7001, "fill 400000", "reset"), "hello")
        self.assertEqual(self.again(7002, "fill 400000", "reset", plain=True), "hello")


if __name__ == "__main__":
    unittest.main()
