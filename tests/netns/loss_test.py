# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Nothing that a peer wrote is lost, and what nobody uses any more is given back."""
import json
import subprocess
import unittest

from base import TwoNodes
from lab.basics import sh, wait_for

# Answers each request with "413" and a body of so many bytes, and closes with the request unread. Argument: body.
HASTY = """
import socket, sys
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(100); print('ready', flush=True)
while True:
    c, _ = s.accept()
    c.recv(1, socket.MSG_PEEK); c.sendall(b'413' + b'x' * int(sys.argv[1])); c.close()
"""

# Uploads to it, so many times, and tells how many answers came whole, and how the connections ended.
UPLOADS = """
import collections, errno, json, socket, sys
whole, ends = 0, collections.Counter()
for _ in range(int(sys.argv[2])):
    c = socket.create_connection((sys.argv[1], 5000), 10); got = 0
    try: c.sendall(b'r' * int(sys.argv[3]))
    except OSError: pass
    try:
        while data := c.recv(65536): got += len(data)
        ends['end'] += 1
    except OSError as e: ends[errno.errorcode.get(e.errno, str(e))] += 1
    c.close(); whole += got == 3 + int(sys.argv[4])
print(json.dumps([whole, ends]))
"""

# Keeps every connection open, whatever its client does.
KEEPER = """
import socket
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(100); print('ready', flush=True)
kept = []
while True:
    c, _ = s.accept(); kept.append(c)
    while c.recv(100): pass
    print('ended', flush=True)
"""


class Loss(TwoNodes):
    def start(self, script, *arguments):
        server = self.b.popen(["/usr/bin/python3", "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), "ready\n")
        return server

    def uploads(self, count, request, body):
        done = self.a.python(UPLOADS, self.b.ip4, str(count), str(request), str(body), timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_an_answer_before_a_close_with_the_request_unread(self):
        self.start(HASTY, "20")
        plain, _ = self.uploads(100, 1000, 20)
        self.assertEqual(plain, 100)
        self.start_agents()
        whole, ends = self.uploads(300, 1000, 20)
        self.assertEqual((whole, ends), (300, {"ECONNRESET": 300}))
        self.assertPath(self.a, "smcd", at_least=300)

    def test_an_answer_to_an_upload_that_is_not_read(self):
        self.start(HASTY, "2000")
        self.start_agents()
        whole, _ = self.uploads(40, 20_000_000, 2000)
        self.assertEqual(whole, 40)
        self.assertPath(self.a, "smcd", at_least=40)

    def test_a_half_closed_connection_whose_client_has_gone(self):
        """As TCP forgets it after its FIN-WAIT-2, which is as long as the client's namespace says."""
        sh("ip", "netns", "exec", self.a.netns, "sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2")
        self.start_agents()
        server = self.start(KEEPER)
        done = self.a.python(f"import socket; socket.create_connection(('{self.b.ip4}', 5000)).send(b'x')")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(server.stdout.readline(), "ended\n")
        for node in (self.a, self.b):
            wait_for("the connection to be forgotten", lambda: not node.agent.connections(), 30)
            self.assertPath(node, "smcd")

    def test_a_half_closed_connection_that_is_used(self):
        sh("ip", "netns", "exec", self.a.netns, "sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2")
        self.start_agents()
        self.b.popen(
            [
                "/usr/bin/python3",
                "-c",
                "import socket, time; s = socket.create_server(('0.0.0.0', 5000)); c, _ = s.accept()\n"
                "while c.recv(100): pass\n"
                "time.sleep(8); c.sendall(b'late')",  # longer than the probes of the half-closed leg take
            ]
        )
        done = self.a.python(
            f"""
import socket, time
while True:
    try: c = socket.create_connection(('{self.b.ip4}', 5000)); break
    except ConnectionRefusedError: time.sleep(0.01)
c.send(b'x'); c.shutdown(socket.SHUT_WR); print(c.recv(10))
"""
        )
        self.assertEqual(done.stdout, "b'late'\n", done.stderr)
        self.assertPath(self.a, "smcd")


if __name__ == "__main__":
    unittest.main()
