# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Many connections, namespaces, devices and cgroups: too many of one owner must not harm others."""
import os
import sys
import time
import unittest

from base import TwoNodes
from lab.basics import sh, wait_for

# Makes network namespaces with a listener in each, until it is told to end. Argument: how many.
NAMESPACES = """
import ctypes, os, signal, socket, sys
def one():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # with its parent
    assert ctypes.CDLL(None).unshare(0x40000000) == 0
    s = socket.socket(); s.listen(); signal.pause()
children = [os.fork() or one() for _ in range(int(sys.argv[1]))]
sys.stdin.readline()
for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
"""

# Attaches as many programs to devices as the kernel accepts, which let everything pass. Arguments: the devices.
FILL = """
import ctypes, errno, platform, socket, struct, sys
PROG_LOAD, PROG_ATTACH, SCHED_CLS, TCX_INGRESS, TCX_EGRESS = 5, 8, 3, 46, 47
BPF = 321 if platform.machine() == 'x86_64' else 280
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    got = libc.syscall(BPF, command, ctypes.create_string_buffer(attributes), len(attributes))
    return got if got >= 0 else -ctypes.get_errno()
code = ctypes.create_string_buffer(struct.pack('<BBhi', 0xb7, 0, 0, -1) + struct.pack('<BBhi', 0x95, 0, 0, 0))
licence = ctypes.create_string_buffer(b'GPL')
load = struct.pack('IIQQ', SCHED_CLS, 2, ctypes.addressof(code), ctypes.addressof(licence))
for _ in range(64):
    program = bpf(PROG_LOAD, load)
    for name in sys.argv[1:]:
        for way in (TCX_INGRESS, TCX_EGRESS):
            done = bpf(PROG_ATTACH, struct.pack('IIIIIIQ', socket.if_nametoindex(name), program, way, 0, 0, 0, 0))
            if done < 0 and done != -errno.ERANGE: sys.exit(errno.errorcode[-done])  # which is: it is full
"""


class Crowds(TwoNodes):
    def test_devices_that_cannot_be_had_are_named_and_rested_from(self):
        names = [f"d{i}" for i in range(6)]  # more than are prepared at once
        for one, other in zip(names[::2], names[1::2]):
            sh("ip", "-n", self.a.netns, "link", "add", one, "type", "veth", "peer", "name", other)
        for name in names:
            sh("ip", "-n", self.a.netns, "link", "set", name, "up")
        done = self.a.python(FILL, *names)
        if "EINVAL" in done.stderr:
            self.skipTest("this kernel has no tcx")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.a.start_agent(bpf={"tc": "tcx"})

        def obstacle():
            return self.a.agent.status()["namespaces"][0]["ipv4_obstacle"]

        wait_for("a device to be named", lambda: any(f"device {name}: " in obstacle() for name in names))
        before = self.processor_time(self.a.agent.pid)
        time.sleep(2)
        self.assertLess(self.processor_time(self.a.agent.pid) - before, 0.5)

    def test_a_full_agent_lets_connections_be_plain(self):
        self.start_agents(limits={"connections": 2, "namespace_percent": 100, "cgroup_percent": 100})
        self.serve()
        self.hold(self.a, 2)
        wait_for("the agent to be full", lambda: not self.a.agent.status()["agent"]["serving"])
        for _ in range(3):
            self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_AGENT_FULL"], 3)
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})
        self.assertIn("NOT SERVING, it has as many connections as it may have", self.a.agent.ctl("status").stdout)

    HOLD = """
import socket, sys, time
held = []
for _ in range(int(sys.argv[2])):
    c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); held.append(c)
print('held', flush=True); time.sleep(3600)"""

    def hold(self, node, count, **kwargs):
        """A program that keeps connections open."""
        return self.program(node, self.HOLD, self.b.ip4, count, says="held", **kwargs)

    def test_many_devices_of_one_namespace_are_nobody_elses_business(self):
        self.start_agents()
        self.serve()
        pod = self.lab.node("pod")
        pod.apps = f"{self.a.cgroup}/pods/pod1"
        os.makedirs(pod.apps)
        for i in range(60):
            sh("ip", "-n", pod.netns, "link", "add", f"br{i}", "up", "type", "bridge")
        pod.popen(["sleep", "infinity"])
        self.connects_until(lambda: self.a.agent.prepared() == 2)
        pods = [s for s in self.a.agent.status()["namespaces"] if "br0" in s["devices"]]
        self.assertEqual([(len(s["devices"]), s["ipv4"]) for s in pods], [(60, True)])

    def connects_until(self, condition):
        """Connects again and again until the condition holds, and prints the time of the slowest."""
        slowest, count, end = 0.0, 0, time.monotonic() + 120
        while count == 0 or (time.monotonic() < end and not condition()):
            began = time.monotonic()
            self.assertTrue(self.connect()["ok"])
            slowest, count = max(slowest, time.monotonic() - began), count + 1
        print(f"{self._testMethodName}: {count} connects, the slowest took {slowest:.3f} s", file=sys.stderr)
        self.assertTrue(condition())
        self.assertPath(self.a, "smcd", at_least=(count + 1) // 2)

    def test_many_new_namespaces_are_nobody_elses_business(self):
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        served = lambda: len(self.a.agent.status()["namespaces"])
        maker = self.program(self.a, NAMESPACES, 60)
        self.connects_until(lambda: served() == 61)
        self.tell(maker, "end")
        wait_for("them to be closed", lambda: served() == 1, 20)

    def test_one_cgroup_cannot_use_up_the_namespaces(self):
        self.a.start_agent(limits={"cgroup_percent": 1})  # 10 of 1024
        self.a.apps = f"{self.a.cgroup}/crowd"
        os.makedirs(self.a.apps)
        self.program(self.a, NAMESPACES, 20)
        served = lambda: len(self.a.agent.status()["namespaces"])
        said = "no further network namespaces of "
        wait_for("the crowd to have its share", lambda: said in self.a.agent.log())
        before = served()
        pod = self.lab.node("pod")
        pod.apps = f"{self.a.cgroup}/pods/pod1"
        os.makedirs(pod.apps)
        pod.popen(["sleep", "infinity"])
        wait_for("the pod to be served", lambda: served() == before + 1)
        self.assertEqual(self.a.agent.log().count(said), 1)

    def test_very_many_cgroups_of_one_are_nobody_elses_business(self):
        """More cgroups than the agent has entries. They take entries only from each other."""
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        for number in range(17000):
            os.makedirs(f"{self.a.cgroup}/crowd/{number // 1000}/{number}")
        self.connects_until(lambda: self.a.agent.status()["cgroups"]["left_out"] > 0)
        self.a.apps = f"{self.a.cgroup}/pods/deep/down/pod1"
        os.makedirs(self.a.apps)
        self.connect()
        unknown = lambda: self.a.agent.decisions()["SMC_OUT_NOT_ENROLLED"]

        def enrolled():
            before = unknown()
            self.assertTrue(self.connect()["ok"])
            return unknown() == before

        wait_for("a new cgroup to be served", enrolled, 60)

    def test_one_namespace_or_cgroup_does_not_use_up_the_agent(self):
        self.a.start_agent(limits={"connections": 6, "namespace_percent": 50, "cgroup_percent": 34})
        self.b.start_agent()
        self.serve()
        other = f"{self.a.cgroup}/other"
        os.makedirs(other)
        self.know(other)
        self.hold(self.a, 3)  # a cgroup may have two of them
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_CGROUP_FULL"], 1)
        self.hold(self.a, 2, cgroup=other)  # the namespace may have one of them
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 3})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NETNS_FULL"], 1)
        pod = self.pod()
        self.assertTrue(self.connect(self.b.ip4, node=pod)["ok"])
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 4})


if __name__ == "__main__":
    unittest.main()
