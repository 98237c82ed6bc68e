# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The memory of connections is bounded, and unused memory is given back."""
import os
import re
import signal
import sys
import unittest

from base import TIME_ENOUGH, TwoNodes
from lab.agent import Agent
from lab.basics import wait_for
from lab.nodes import cgroup_mount

# Holds connections to an echo server, moves so many bytes over each, says so, and keeps them. Arguments: address, how
# many, bytes, over how many at once.
HOLDER = """
import socket, sys, threading, time
held = [socket.create_connection((sys.argv[1], 5000), 20) for _ in range(int(sys.argv[2]))]; moved = 0
def move(c):
    left = int(sys.argv[3]); sender = threading.Thread(target=c.sendall, args=(b'x' * left,)); sender.start()
    while left: left -= len(c.recv(min(left, 65536)))
    sender.join()
while held[moved:]:
    movers = [threading.Thread(target=move, args=(c,)) for c in held[moved:][:int(sys.argv[4])]]
    for mover in movers: mover.start()
    for mover in movers: mover.join()
    moved += len(movers)
print('moved', flush=True); time.sleep(600)
"""


# A server that accepts and never reads. Argument: receive buffer, 0 for the kernel's choice.
DEAF = """
import socket, sys
s = socket.socket(); size = int(sys.argv[1])
if size: s.setsockopt(1, 8, size)
s.bind(('0.0.0.0', 5001)); s.listen(10); print('ready', flush=True); kept = []
while True: kept.append(s.accept())
"""

# Prints how many bytes it could send until nothing was taken for a second. Arguments: address, send buffer, and whether
# it sets that before connect().
TALKER = """
import select, socket, sys
c = socket.socket(); size = int(sys.argv[2]); late = sys.argv[3] == 'late'
if size and not late: c.setsockopt(1, 7, size)
c.connect((sys.argv[1], 5001))
if size and late: c.setsockopt(1, 7, size)
c.setblocking(False); sent = 0
poll = select.poll(); poll.register(c, select.POLLOUT)
while poll.poll(1000):
    try: sent += c.send(b'x' * 4096)
    except BlockingIOError: pass
print(sent)
"""


def own_cgroup(controller):
    """The cgroup of the process in the hierarchy of a cgroup v1 controller; nothing if the controller is one of v2."""
    with open("/proc/self/cgroup") as lines:
        for line in lines:
            _, controllers, path = line.strip().split(":", 2)
            if controller in controllers.split(","):
                return f"/sys/fs/cgroup/{controller}{path}"
    return None


class MemoryGroup:
    """A control group with so much memory; processes that are started meanwhile belong to it."""

    def __init__(self, name):
        self.came_from = own_cgroup("memory")
        self.v1 = self.came_from is not None
        if not self.v1:
            with open("/proc/self/cgroup") as lines:
                self.came_from = cgroup_mount() + lines.read().strip().split("::", 1)[1]
        base = "/sys/fs/cgroup/memory" if self.v1 else cgroup_mount()
        self.path = f"{base}/{name}-memory"  # in v2 the laboratory has a group there, too

    def make(self, limit):
        os.makedirs(self.path, exist_ok=True)
        file = "memory.limit_in_bytes" if self.v1 else "memory.max"
        if not os.path.exists(f"{self.path}/{file}"):
            raise unittest.SkipTest("the memory controller is not there for control groups below the root")
        self.write(file, limit)

    def limit(self, bytes):
        self.write("memory.limit_in_bytes" if self.v1 else "memory.max", bytes)

    def write(self, file, value):
        with open(f"{self.path}/{file}", "w") as to:
            to.write(str(value))

    def __enter__(self):
        self.write("cgroup.procs", os.getpid())

    def __exit__(self, *_):
        with open(f"{self.came_from}/cgroup.procs", "w") as to:
            to.write(str(os.getpid()))

    def remove(self):
        """Removes the group after its processes have ended, if it was made."""
        if os.path.exists(self.path):
            os.rmdir(self.path)


class Memory(TwoNodes):
    def setUp(self):
        self.group = None
        self.addCleanup(lambda: self.group and self.group.remove())  # after the laboratory's processes have ended
        super().setUp()

    def hold(self, count, size, at_once=1):
        return self.program(self.a, HOLDER, self.b.ip4, count, size, at_once, says="moved")

    def resident(self, node):
        """KiB of DMBs that are resident in the agent's memory."""
        with open(f"/proc/{node.agent.pid}/smaps") as file:
            maps = re.findall(r"memfd:smc-dmb.*?\nRss:\s+(\d+) kB", file.read(), re.DOTALL)
        self.assertTrue(maps)
        return sum(int(kib) for kib in maps)

    def test_idle_connections_give_their_rings_back(self):
        self.start_agents(**TIME_ENOUGH)
        self.serve()
        holder = self.hold(3, 4_000_000, at_once=3)  # so that none is idle before all have moved their bytes
        for node in (self.a, self.b):
            self.assertGreater(self.resident(node), 3 * 1024)  # half of what six rings may take
        self.assertPath(self.a, "smcd", at_least=3)
        for node in (self.a, self.b):
            wait_for("the rings to be given back", lambda: self.resident(node) < 6 * 16 * 4, 60)
        holder.terminate()
        self.assertTrue(self.connect()["ok"])

    def test_the_rings_together_have_a_limit(self):
        self.a.start_agent(ism={"memory_mib": 8}, fallback={"cache_s": 1, "budget_ms": 10000})
        self.b.start_agent()
        self.serve()
        holder = self.hold(6, 100_000)
        self.assertEqual(self.a.agent.totals()[("smcd", "none")], 4)
        self.assertEqual(self.a.agent.status()["ism"]["taken_bytes"], 8 << 20)
        self.assertIn("8.0 MiB of at most 8.0 MiB", self.a.agent.ctl("status").stdout)
        holder.terminate()
        wait_for("the memory to be given back", lambda: self.a.agent.status()["ism"]["taken_bytes"] == 0)

        def again():
            self.assertTrue(self.connect()["ok"])
            return self.a.agent.totals()[("smcd", "none")] > 4

        wait_for("the server to be asked again", again)

    def accepted_for_the_deaf(self, send, receive, when="early"):
        server = self.program(self.b, DEAF, receive, says="ready")
        done = self.a.python(TALKER, self.b.ip4, str(send), when)
        self.assertEqual(done.returncode, 0, done.stderr)
        server.kill()
        server.wait()
        return int(done.stdout)

    def test_a_peer_that_does_not_read_is_sent_what_the_buffers_say(self):
        # SO_SNDBUF and SO_RCVBUF, before connect() and listen() or, "late", SO_SNDBUF after connect()
        cases = [(4096, 4096), (65536, 65536), (4096, 0), (0, 4096)]
        cases += [(4096, 4096, "late"), (4096, 0, "late"), (65536, 0, "late"), (0, 0)]
        plain = [self.accepted_for_the_deaf(*case) for case in cases]
        self.start_agents()
        smc = [self.accepted_for_the_deaf(*case) for case in cases]
        self.assertPath(self.a, "smcd", at_least=len(cases))
        print(f"bytes that send() accepts, TCP {plain}, SMC-D {smc}", file=sys.stderr)
        for case, of_tcp, of_smc in zip(cases, plain, smc):
            # 64 KiB: the window of a leg's SYN; 16 KiB each: the smallest ring, and unsent bytes of a leg
            self.assertLess(of_smc, 3 * of_tcp + (64 + 2 * 16) * 1024 if any(case[:2]) else 8 * of_tcp, case)

    def test_a_control_group_of_64_mib(self):
        self.b.start_agent()
        with open(f"/proc/{self.b.agent.pid}/status") as status:
            resident = int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) << 10
        # an agent with a sanitizer needs more memory when idle, and a multiple of the memory that it touches
        self.group = MemoryGroup(self.lab.tag)
        self.group.make(64 << 20 if resident < 32 << 20 else resident + (1 << 30))
        with self.group:
            self.a.start_agent(fallback={"cache_s": 1})
        self.serve()
        self.hold(100, 2 << 20)
        for node in (self.a, self.b):
            self.assertIsNone(node.agent.process.poll())
        self.assertIn("ism.memory_mib 4096 lowered", self.a.agent_log())
        self.assertGreater(self.a.agent.totals()[("smcd", "none")], 2)

    def test_a_control_group_in_a_namespace_of_control_groups(self):
        """As in a container that is not privileged: its own control group looks like the root of the tree there."""
        self.group = MemoryGroup(self.lab.tag)
        self.group.make(1 << 30)
        with self.group:
            # The first process of a PID namespace stays in the node's namespace of control groups.
            first = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
            agent = Agent(self.a, self.a.config(), command=[*first, 'unshare --cgroup "$@" & wait', "sh"])
        wait_for("its status", lambda: "ism" in (agent.status() or {}))
        self.assertLess(agent.status()["ism"]["memory_bytes"], 1 << 30)
        pid = agent.pid
        for _ in ("sh", "smc-agent"):
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                (pid,) = map(int, children.read().split())
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(agent.process.wait(60), 0)

    def test_a_control_group_that_becomes_smaller_and_larger(self):
        self.b.start_agent()
        self.group = MemoryGroup(self.lab.tag)
        self.group.make(1 << 40)
        with self.group:
            self.a.start_agent(fallback={"cache_s": 1})
        self.serve()
        with open(f"/proc/{self.a.agent.pid}/status") as status:
            resident = int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) << 10
        less = 64 << 20 if resident < 32 << 20 else resident + (1 << 30)

        def limits():
            status = self.a.agent.status()
            return {"ism": status["ism"]["memory_bytes"], "connections": status["limits"]["connections"]}

        configured = limits()
        self.assertEqual(configured["ism"], 4096 << 20)
        self.group.limit(less)
        wait_for("lower limits", lambda: limits()["ism"] < less)
        self.hold(100, 2 << 20)
        self.assertIsNone(self.a.agent.process.poll())
        self.assertLessEqual(self.a.agent.status()["ism"]["taken_bytes"], limits()["ism"])
        self.assertGreater(self.a.agent.totals()[("smcd", "none")], 2)
        self.group.limit(1 << 40)
        wait_for("limits as they were", lambda: limits() == configured)
        log = self.a.agent_log()
        self.assertIn("ism.memory_mib 4096 lowered", log)
        self.assertIn("raised to 4096: the control group allows 1048576 MiB", log)


if __name__ == "__main__":
    unittest.main()
