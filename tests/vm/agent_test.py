# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Agents on kernels other than the developer's, with the Linux kernel's net/smc as the peer.

Agents do SMC-D and kernels without an ISM device SMC-R, so they have no type in common: each must decline the other in its
own words, and the connection must go on as TCP with every byte in place.
"""
import json
import os
import subprocess
import unittest

from vm import VmLab, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["SMC_BUILD"]
PEER, NETLINK = os.path.join(HERE, "af_smc.py"), os.path.join(HERE, "smcnl.py")
ECHO = """
import socket, sys
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
for _ in range(int(sys.argv[2])):
    c, _ = listener.accept()
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
"""
CLIENT = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
payload = bytes(range(251)) * 400
c.sendall(payload)
c.shutdown(socket.SHUT_WR)
got = b""
while data := c.recv(65536):
    got += data
print("same" if got == payload else f"different after {len(got)}")
"""


class Agent:
    def __init__(self, machine):
        self.machine = machine
        config = {"log": {"level": "debug"}, "fallback": {"cache_s": 1}}
        with open(os.path.join(machine.job, "agent.json"), "w") as file:
            json.dump(config, file)
        self.process = machine.start_program([f"{BUILD}/smc-agent", "--config", "/job/agent.json"], "agent.log")
        wait_for("the agent to serve its namespace", lambda: (self.ctl("status") or {}).get("namespaces"))

    def ctl(self, *arguments):
        done = self.machine.run([f"{BUILD}/smcctl", *arguments, "--json"], check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def ended(self):
        return self.ctl("connections", "--ended")


class Cases:
    series = None

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("agent" + cls.series.replace(".", "")))
        cls.linux, cls.node = cls.lab.machine("linux", "6.12"), cls.lab.machine("node", cls.series)
        cls.lab.boot()
        cls.linux.modprobe("smc", "smc_diag")
        cls.linux.run(["python3", NETLINK, "ueid", "SMC-AGENT.DEFAULT"])
        cls.node.modprobe("sch_ingress", "cls_bpf")
        cls.agent = Agent(cls.node)
        cls.log = 0

    def serve(self, machine, *argv):
        type(self).log += 1
        server = machine.start_program(argv, f"serve{self.log}.log")
        wait_for("the server to listen", lambda: "listening" in server.text())
        return server

    def stories(self):
        out = subprocess.run([f"{BUILD}/smcctl", "decode", "--summary", "--json", self.linux.capture],
                             stdout=subprocess.PIPE, text=True, timeout=60).stdout
        return [o for o in map(json.loads, out.splitlines()) if o["kind"] == "connection"]

    def test_a_kernel_client_is_declined_by_the_agent(self):
        server = self.serve(self.node, "python3", "-c", ECHO, 7001, 1)
        self.assertEqual(self.linux.run(["python3", PEER, "client", self.node.ip4, 7001, 50000]).stdout, "50000 bytes\n")
        self.assertEqual(server.wait(), 0)
        story = next(s for s in self.stories() if s["server"].endswith(":7001"))
        self.assertTrue(story["proposed"].startswith("SMC-Rv2.1; EID SMC-AGENT.DEFAULT"), story)
        self.assertIn("DECLINE by the server: 0x03040000 (no SMC type in common)", story["answered"])
        connection = wait_for("the connection to end", lambda: [c for c in self.agent.ended() or [] if c["server"].endswith(":7001")])[0]
        self.assertEqual((connection["path"], connection["reason"]["name"]), ("fallback", "mode_mismatch"))

    def test_the_agents_client_is_declined_by_the_kernel(self):
        server = self.serve(self.linux, "python3", PEER, "serve", 7002, 1)
        self.assertEqual(self.node.run(["python3", "-c", CLIENT, self.linux.ip4, 7002]).stdout, "same\n")
        self.assertEqual(server.wait(), 0)
        story = next(s for s in self.stories() if s["server"].endswith(":7002"))
        self.assertTrue(story["proposed"].startswith("SMC-Dv2.1; EID SMC-AGENT.DEFAULT"), story)
        self.assertIn("DECLINE by the server: 0x0303", story["answered"])
        connection = wait_for("the connection to end", lambda: [c for c in self.agent.ended() or [] if c["server"].endswith(":7002")])[0]
        self.assertEqual((connection["path"], connection["reason"]["name"]), ("fallback", "peer_declined"))

    def test_zz_the_agent_leaves_nothing_on_that_kernel(self):
        self.agent.process.send_signal(15)
        self.assertEqual(self.agent.process.wait(), 0, self.agent.process.text()[-2000:])
        # the kernel frees programs after their owner is gone
        wait_for("the programs to be gone", lambda: "name smc_" not in self.node.run(["bpftool", "prog", "show"]).stdout)
        self.assertNotIn("smc_ingress", self.node.sh("tc filter show dev eth0 ingress || true"))
        self.assertEqual(self.node.sh("ls /sys/fs/bpf"), "")

class Newest(Cases, unittest.TestCase):
    """Without net/smc, as the nodes of our users are."""
    series = "7"


class Old(Cases, unittest.TestCase):
    """Without tcx: the wire programs are attached by clsact."""
    series = "6.1"


if __name__ == "__main__":
    unittest.main()
