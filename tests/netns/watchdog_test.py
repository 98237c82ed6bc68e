# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Only the data path stands still: new connections are plain TCP, and the agent can be ended."""
import ctypes
import os
import select
import signal
import unittest

from base import TwoNodes
from lab.basics import sh, wait_for

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # ptrace requests
WALL = 0x40000000  # waitpid(): of threads, too

# A client that sends each line of its stdin, and prints the answer or the error.
KEEPER = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000), 60)
for word in sys.stdin:
    try: c.sendall(word.encode()); print(c.recv(100).decode().strip() or 'clean end', flush=True)
    except OSError as e: print(type(e).__name__, flush=True)
"""


class Standstill:
    """Stops one thread of a process by ptrace. The thread that stops it must also be the one that continues it."""

    def __init__(self, pid, name):
        self.tid = next(tid for tid in map(int, os.listdir(f"/proc/{pid}/task")) if self.name_of(pid, tid) == name)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long
        self.ptrace(SEIZE)
        self.stopped = True
        self.ptrace(INTERRUPT)
        wait_for("the thread to stop", lambda: os.waitpid(self.tid, WALL | os.WNOHANG)[0])

    @staticmethod
    def name_of(pid, tid):
        with open(f"/proc/{pid}/task/{tid}/comm") as comm:
            return comm.read().strip()

    def ptrace(self, request):
        if self.libc.ptrace(request, self.tid, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")

    def end(self):
        if self.stopped:
            self.ptrace(DETACH)
            self.stopped = False

    def gone(self):
        """True when the thread has ended. Its tracer must reap it before others see the end of its process."""
        self.stopped = self.stopped and os.waitpid(self.tid, WALL | os.WNOHANG)[0] == 0
        return not self.stopped


class Watchdog(TwoNodes):
    def setUp(self):
        super().setUp()
        self.start_agents()
        self.serve()

    def keeper(self):
        """A program with a connection over SMC."""
        before = self.a.agent.totals().get(("smcd", "none"), 0)
        process = self.program(self.a, KEEPER, self.b.ip4)
        self.tell(process, "first")
        self.assertEqual(self.said(process), "first")
        self.assertEqual(self.a.agent.totals()[("smcd", "none")], before + 1)
        return process

    def said(self, keeper, within=30):
        """The next line that it prints; nothing: it still waits."""
        return keeper.stdout.readline().strip() if select.select([keeper.stdout], [], [], within)[0] else ""

    def standstill(self, node):
        """Stops the node's data path, and waits until the agent has noticed it."""
        stop = Standstill(node.agent.pid, "smc-datapath")
        self.addCleanup(lambda: stop.gone() or stop.end())
        wait_for("it to be noticed", lambda: not node.agent.status()["agent"]["serving"], 30)
        self.assertIn("NOT SERVING, the data path stands still", node.agent.ctl("status").stdout)
        self.assertEqual(node.agent_log().count("the data path stands still: new connections are plain TCP"), 1)
        return stop

    def accelerated(self):
        return self.a.agent.totals()[("smcd", "none")]

    def plain_and_quick(self, node, counter):
        """New connections are plain and quick while the data path of `node` stands still."""
        accelerated, before = self.accelerated(), node.agent.decisions()[counter]
        for _ in range(3):
            self.assertAtOnce(self.connect())
        self.assertEqual(self.accelerated(), accelerated)
        self.assertEqual(node.agent.decisions()[counter], before + 3)

    def stands_still_for_a_while(self, node, counter):
        keeper = self.keeper()
        stop = self.standstill(node)
        self.tell(keeper, "second")  # the running connection waits
        self.plain_and_quick(node, counter)
        self.assertEqual(self.said(keeper, 0), "")
        stop.end()
        self.assertEqual(self.said(keeper), "second")
        wait_for("it to serve again", lambda: node.agent.status()["agent"]["serving"], 30)
        self.assertEqual(node.agent_log().count("the data path goes on"), 1)
        before = self.accelerated()
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.accelerated(), before + 1)

    def test_a_data_path_that_stands_still_at_the_client(self):
        self.stands_still_for_a_while(self.a, "SMC_OUT_AGENT_FULL")

    def test_a_data_path_that_stands_still_at_the_server(self):
        """Its client remembers it: it holds one SYN in vain, and asks for later ones."""
        self.stands_still_for_a_while(self.b, "SMC_IN_AGENT_FULL")

    def terminated(self, stop):
        """SIGTERM ends agent a although its data path stands still."""
        self.a.agent.send_signal(signal.SIGTERM)
        wait_for("the agent to end", stop.gone, 30)
        self.assertEqual(self.a.agent.process.wait(30), 1)
        self.assertIn("the data path did not stop in time: exiting", self.a.agent_log())

    def test_a_data_path_that_does_not_end(self):
        """SIGTERM ends the agent nevertheless. It leaves what a killed agent leaves, until the next one starts."""
        self.terminated(self.standstill(self.a))
        inside = ["nsenter", f"--net=/run/netns/{self.a.netns}"]
        self.assertNotIn("smc_", sh("bpftool", "cgroup", "show", self.a.cgroup))
        self.assertEqual(sh(*inside, "ss", "-Hltn"), "")
        self.assertAtOnce(self.connect())
        self.a.start_agent()
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.accelerated(), 1)
        self.assertEqual(self.a.agent.stop(), 0)
        self.assertNotIn("smc_", sh(*inside, "bpftool", "net", "show"))
        for left in (self.a.pins, f"{self.a.pins}-old", self.a.control, f"{self.a.cgroup}/smc-agent"):
            self.assertFalse(os.path.exists(left), left)

    def test_who_waits_for_bytes_hears_that_the_agent_has_ended(self):
        """L1, even if the data path does not end."""
        keeper = self.keeper()
        stop = self.standstill(self.a)
        self.tell(keeper, "second")
        self.terminated(stop)
        self.assertEqual(self.said(keeper), "ConnectionResetError")


if __name__ == "__main__":
    unittest.main()
