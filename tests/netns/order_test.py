# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Actions of one client on several connections reach its server in their order, as with plain TCP."""
import unittest

from base import TwoNodes

# Two connections of one client: in each round the younger one is written first. Counts how often only the older one was
# readable: then the server got bytes before others that were sent earlier.
BOTH_READ = """
import select, socket
s = socket.create_server(('0.0.0.0', 5000)); print('ready', flush=True)
old, young = s.accept()[0], s.accept()[0]
p = select.epoll(); p.register(old, select.EPOLLIN); p.register(young, select.EPOLLIN); wrong = 0
while True:
    found = {fd for fd, _ in p.poll()}
    wrong += found == {old.fileno()}
    if not young.recv(1): break
    old.recv(1); old.sendall(b'n')
print(wrong, flush=True)
"""
BOTH_WRITTEN = """
import socket, sys
old, young = (socket.create_connection((sys.argv[1], 5000), 10) for _ in range(2)); print('up', flush=True)
sys.stdin.readline()
for _ in range(1000): young.sendall(b'y'); old.sendall(b'o'); old.recv(1)
young.close(); old.close()
"""

# Four connections, of which the last one ends first. Prints the order in which the server sees their ends.
ENDS_READ = """
import select, socket, sys
s = socket.create_server(('0.0.0.0', 5000)); print('ready', flush=True)
while True:
    cs = [s.accept()[0] for _ in range(4)]
    for c in cs: c.recv(1)
    p = select.epoll()
    for c in cs: p.register(c, select.EPOLLIN | select.EPOLLONESHOT)
    for c in cs: c.sendall(b'n')
    order = [p.poll(maxevents=1)[0][0] for _ in cs]
    print(''.join(str([c.fileno() for c in cs].index(fd)) for fd in order), flush=True)
"""
ENDS_WRITTEN = """
import socket, sys
cs = [socket.create_connection((sys.argv[1], 5000), 10) for _ in range(4)]
for c in cs: c.sendall(b'x')
for c in cs: c.recv(1)
print('up', flush=True); sys.stdin.readline()
for c in reversed(cs): c.shutdown(socket.SHUT_WR)
sys.stdin.readline()
"""


class Order(TwoNodes):
    def start(self, spin_us):
        """Starts agents with several threads each: connections between two addresses are in one of them."""
        self.start_agents(engine={"threads": 4, "spin_us": spin_us})

    def read_wrong(self):
        server = self.program(self.b, BOTH_READ, says="ready")
        client = self.program(self.a, BOTH_WRITTEN, self.b.ip4, says="up")
        self.assertPath(self.a, "smcd", at_least=2)
        self.tell(client, "go")
        return self.hear(server)

    def test_what_is_sent_first_can_be_read_first(self):
        self.start(spin_us=200)
        self.assertEqual(self.read_wrong(), "0")

    def test_what_is_sent_first_can_be_read_first_where_the_data_path_sleeps_at_once(self):
        self.start(spin_us=0)
        self.assertEqual(self.read_wrong(), "0")

    def test_what_ends_first_is_heard_to_end_first(self):
        self.start(spin_us=200)
        server = self.program(self.b, ENDS_READ, says="ready")
        for _ in range(15):
            client = self.program(self.a, ENDS_WRITTEN, self.b.ip4, says="up")
            self.assertPath(self.a, "smcd", at_least=4)
            self.tell(client, "end")
            self.assertEqual(self.hear(server), "3210")
            self.end_program(client)


if __name__ == "__main__":
    unittest.main()
