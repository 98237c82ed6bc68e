# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The TCP connection between an application and the agent: the leg."""
import glob
import json
import os
import unittest

from base import TALK, TwoNodes
from lab.basics import sh, wait_for

# Connects, and holds on until its stdin ends. Arguments: address, congestion control of its own or "".
HOLDER = """
import socket, sys
c = socket.socket()
if sys.argv[2]: c.setsockopt(socket.IPPROTO_TCP, 13, sys.argv[2].encode())
c.connect((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('held', flush=True); sys.stdin.read()
"""

# Connects; on a line of stdin, disconnects and connects elsewhere with the same socket.
USED_AGAIN = """
import ctypes, socket, sys
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('up', flush=True)
sys.stdin.readline()
assert ctypes.CDLL(None).connect(c.fileno(), bytes(16), 16) == 0  # AF_UNSPEC
print('free', flush=True); sys.stdin.readline()
c.connect((sys.argv[1], int(sys.argv[2]))); c.sendall(b'x'); c.recv(1)
print('again', c.getsockopt(6, 13, 16).rstrip(bytes(1)).decode(), flush=True); sys.stdin.read()
"""


# Accepts a connection, gives a byte back, and resets the connection when it reads a line.
RESETS = """
import socket, struct, sys
s = socket.create_server(('', int(sys.argv[1]))); print('ready', flush=True); c, _ = s.accept(); c.sendall(c.recv(1))
sys.stdin.readline(); c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.close(); print('reset', flush=True)
sys.stdin.read()
"""


# A tracer that puts every socket of the node into a sockmap of its own, and lets all data pass.
TRACER = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_SOCKHASH); __uint(max_entries, 4096); __type(key, __u64); __type(value, __u32); }
    socks SEC(".maps");
SEC("sockops") int add(struct bpf_sock_ops *ctx) {
  __u64 cookie = bpf_get_socket_cookie(ctx);
  if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
    bpf_sock_hash_update(ctx, &socks, &cookie, BPF_NOEXIST);
  return 1;
}
SEC("sk_msg") int pass(struct sk_msg_md *message) { return SK_PASS; }
char LICENSE[] SEC("license") = "GPL";
"""


class Legs(TwoNodes):
    def trace(self):
        source, pins = self.a.write("tracer.c", TRACER), f"/sys/fs/bpf/{self.lab.tag}-tracer"
        headers = f"-I/usr/include/{os.uname().machine}-linux-gnu"
        sh("clang-14", "-O2", "-g", "-target", "bpf", headers, "-c", source, "-o", source[:-1] + "o")
        sh("bpftool", "prog", "loadall", source[:-1] + "o", pins, "pinmaps", pins)
        sh("bpftool", "prog", "attach", "pinned", f"{pins}/pass", "msg_verdict", "pinned", f"{pins}/socks")
        sh("bpftool", "cgroup", "attach", self.lab.cgroup, "sock_ops", "pinned", f"{pins}/add", "multi")

    def test_beside_a_tracer_with_every_socket_in_a_map(self):
        """For a socket in a sockmap, the kernel may report a wrong number of readable bytes."""
        self.trace()
        self.start_agents()
        self.serve()
        talker = self.program(self.a, TALK, self.b.ip4, says="up")
        traced = json.loads(sh("bpftool", "-j", "map", "dump", "pinned", f"/sys/fs/bpf/{self.lab.tag}-tracer/socks"))
        self.assertGreaterEqual(len(traced), 4)  # both applications' sockets and both legs, at least
        for _ in range(25):
            self.tell(talker, "z" * 400_000)
            self.assertEqual(len(self.hear(talker)), 400_000)
        self.assertPath(self.a, "smcd")

    def test_a_half_open_socket_whose_lock_its_program_holds(self):
        """The agent goes on: another process waits for the lock, to end the socket."""
        self.start_agents()
        server = self.program(self.b, RESETS, 5001, says="ready")
        self.serve()
        holder = self.hold_lock(self.a, self.b.ip4, 5001)
        self.tell(server, "")
        self.assertEqual(self.hear(server), "reset")
        waits = lambda pid: any(self.is_waiting(task) for task in glob.glob(f"/proc/{pid}/task/*"))
        wait_for("a process to wait for the lock", lambda: any(map(waits, self.lock_helpers(self.a))), 60)
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd", at_least=1)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])
        self.tell(holder, "")
        self.assertEqual(self.hear(holder), "free")
        self.assertIn(self.hear(holder), ("ECONNRESET", "ECONNABORTED"))
        self.assertEqual(self.a.agent.stop(), 0)

    def congestion_controls(self, node):
        """The congestion control of every established connection, {(local port, remote port): name}."""
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
        """Reno at all four ends, whatever the namespace's default: no network is between the ends of a leg."""
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

    def test_hairpins_go_with_their_leg_and_no_sooner(self):
        self.start_agents()
        self.serve()
        talker = self.program(self.a, TALK, self.b.ip4, says="up")
        hairpins = {node: self.table(node, "smc_hairpins") for node in (self.a, self.b)}
        for _ in range(3):
            self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd", at_least=4)
        keys = lambda entries: sorted(str(entry["key"]) for entry in entries)
        for node, before in hairpins.items():
            self.assertEqual(len(before), 2)  # one for each direction
            wait_for("those of the others to go", lambda: keys(self.table(node, "smc_hairpins")) == keys(before))
        self.tell(talker, "hello")
        self.assertEqual(self.hear(talker), "hello")
        self.end_program(talker)
        for node in hairpins:
            wait_for("all to go", lambda: self.table(node, "smc_hairpins") == [])

    def test_a_socket_that_is_used_again_leaves_its_hairpin(self):
        self.start_agents()
        self.serve()
        self.serve(port=5001)
        client = self.program(self.a, USED_AGAIN, self.b.ip4, 5001, says="up")
        entries = lambda: self.table(self.a, "smc_hairpins")
        hairpins = lambda: {str(entry["key"]) for entry in entries()}
        before = hairpins()
        self.assertEqual(len(before), 2)
        self.tell(client, "go")
        self.assertEqual(self.hear(client), "free")
        self.tell(client, "go")
        self.assertIn("again", self.hear(client))
        left = [e["value"] for e in entries() if str(e["key"]) in before and not e["value"]["of_leg"]]
        self.assertIn([value["sender"]["cookie"] for value in left], ([0], []))  # []: swept already
        self.assertPath(self.a, "smcd", at_least=2)
        wait_for("those of its first connection to go", lambda: not hairpins() & before)
        self.assertEqual(len(hairpins()), 2)

    def test_a_socket_that_is_used_again_for_tcp_has_its_congestion_control_back(self):
        (before,) = self.a.run(["sysctl", "-n", "net.ipv4.tcp_congestion_control"]).stdout.split()
        self.assertNotEqual(before, "reno")
        self.start_agents(policy={"default": "allow", "rules": [{"name": "x", "action": "deny", "ports": ["5001"]}]})
        self.serve()
        self.serve(port=5001)
        client = self.program(self.a, USED_AGAIN, self.b.ip4, 5001, says="up")
        self.assertPath(self.a, "smcd")
        self.tell(client, "go")
        self.assertEqual(self.hear(client), "free")
        self.tell(client, "go")
        self.assertEqual(self.hear(client), f"again {before}")

    def test_an_application_that_ends_where_its_device_is_gone(self):
        """Neither its FIN nor a reset leaves: only the destruction of its socket tells the agent of its end."""
        self.start_agents()
        self.serve()
        pod = self.pod()
        pod.run(["sysctl", "-qw", "net.ipv4.tcp_orphan_retries=1"])
        talkers = [self.program(pod, TALK, self.b.ip4, says="up") for _ in range(2)]
        pod.run(["ip", "link", "del", pod.device])
        talkers[0].kill()
        wait_for("the end of the connection", lambda: len(self.a.agent.status()["connections"]) == 1, 60)
        ended = self.b.agent.ended(5000)
        self.assertEqual([c["reason"]["name"] for c in ended], ["peer_aborted"])
        self.assertIn("half-open: ended the leg ", self.a.agent_log())
        self.assertIsNone(talkers[1].poll())


if __name__ == "__main__":
    unittest.main()
