# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What TCP does on the way between an application and the agent."""
import unittest

from base import TwoNodes

# Connects, and holds on until its stdin ends. Arguments: address, congestion control of its own or "".
HOLDER = """
import socket, sys
c = socket.socket()
if sys.argv[2]: c.setsockopt(socket.IPPROTO_TCP, 13, sys.argv[2].encode())
c.connect((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('held', flush=True); sys.stdin.read()
"""


class Legs(TwoNodes):
    def congestion_controls(self, node):
        """Of every established connection, {(local port, remote port): name}."""
        lines = node.run(["ss", "-Htni", "state", "established"], check=True).stdout.splitlines()
        return {
            tuple(int(end.rsplit(":", 1)[1]) for end in head.split()[2:4]): info.split()[0]
            for head, info in zip(lines[::2], lines[1::2])
        }

    def hold(self, own=""):
        self.program(self.a, HOLDER, self.b.ip4, own, says="held")
        self.assertPath(self.a, "smcd")
        return int(self.a.agent.connections()[-1]["client"].rsplit(":", 1)[1])

    def test_legs_are_not_paced(self):
        """Reno at all four ends, whatever the namespace's default: a leg has no network to be careful of."""
        self.start_agents()
        self.serve()
        port = self.hold()
        found = self.congestion_controls(self.a)
        self.assertEqual(found.pop((port, 5000)), "reno")
        self.assertIn("reno", found.values())  # the agent's end; the CLC socket has the namespace's default
        found = self.congestion_controls(self.b)
        self.assertEqual((found[5000, port], found[port, port]), ("reno", "reno"))

    def test_what_the_application_chose_stays(self):
        self.start_agents()
        self.serve()
        available = self.a.run(["sysctl", "-n", "net.ipv4.tcp_available_congestion_control"]).stdout.split()
        own = next(name for name in available if name != "reno")
        port = self.hold(own)
        self.assertEqual(self.congestion_controls(self.a)[port, 5000], own)


if __name__ == "__main__":
    unittest.main()
