# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections without a VLAN tag and in two VLANs (802.1Q) beside each other, between an agent and the Linux kernel's
own net/smc, in either role: each VLAN has a link group of its own (RFC 7609 section 2.2). And pods of the agent's node,
whose devices have no tag themselves: a macvlan and an ipvlan."""
import os
import unittest

from lab import netsmc
from lab.machines import VmLab
from programs import NATIVE, TCP

VLANS = (0, 100, 200)
PODS = {"macvlan": (100, "10.100.0.7"), "ipvlan": (200, "10.200.0.7")}


def address(machine, vlan):
    return f"10.{vlan}.0.{machine.index}" if vlan else machine.ip4


class Vlans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("vlans"))
        cls.linux = cls.lab.machine("linux", "6.12")
        cls.node = cls.lab.machine("node", os.environ.get("SMC_VM_KERNEL", "7"))
        cls.lab.boot()
        for machine in (cls.linux, cls.node):
            machine.modprobe("8021q")
            for vlan in VLANS[1:]:
                machine.sh(
                    f"ip link add link eth0 name eth0.{vlan} type vlan id {vlan}; ip link set eth0.{vlan} up;"
                    f"ip addr add {address(machine, vlan)}/24 dev eth0.{vlan}"
                )
        netsmc.make_ready(cls.linux)
        cls.agent = cls.node.start_agent()
        cls.port = 7800

    def exchange(self, client, server, to):
        """One connection; the agent's record of it."""
        type(self).port += 1
        echo = server[0].start_server([*server[1], "serve", self.port, 1], f"{self.port}.log")
        done = client[0].run([*client[1], "client", to, self.port, 100_000])
        self.assertEqual((done.stdout, echo.wait()), ("100000 bytes\n", 0))
        (ended,) = self.agent.ended(self.port)
        self.assertEqual((ended["path"], ended["reason"]["name"]), ("smcr", "none"))
        return ended

    def groups(self, role):
        return sorted(g["vlan"] for g in self.agent.smcr_groups() if g["role"] == role)

    def each_twice(self, client, server, role):
        before = netsmc.counters(self.linux)["fallbacks"]
        for vlan in (*VLANS, *VLANS):
            with self.subTest(vlan=vlan):
                self.exchange(client, server, address(server[0], vlan))
        self.assertEqual(netsmc.counters(self.linux)["fallbacks"], before)
        self.assertEqual(self.groups(role), list(VLANS))

    def test_1_the_agent_connects(self):
        self.each_twice((self.node, TCP), (self.linux, NATIVE), "CLNT")
        rows = [row.split() for row in self.agent.ctl("linkgroup", "--smcr").stdout.splitlines()]
        self.assertEqual([row[3] for row in rows if len(row) == 6], ["VLAN", "-", "100", "200"])

    def test_2_linux_connects(self):
        self.each_twice((self.linux, NATIVE), (self.node, TCP), "SERV")

    def test_3_pods(self):
        """Their connections join the groups of the VLANs by which they leave the node."""
        self.node.modprobe("macvlan", "ipvlan")
        for pod, (vlan, ip) in PODS.items():
            made = {
                "macvlan": f"link add link eth0.{vlan} name pod0 netns {pod} type macvlan mode bridge",
                "ipvlan": f"link add link eth0.{vlan} name pod0 netns {pod} type ipvlan mode l2",
            }[pod]
            self.node.sh(
                f"ip netns add {pod}; ip {made}; ip -n {pod} link set lo up; ip -n {pod} link set pod0 up;"
                f"ip -n {pod} addr add {ip}/24 dev pod0"
            )
        before = self.groups("CLNT")
        for pod, (vlan, _) in PODS.items():
            with self.subTest(pod):
                inside = (self.node, ["ip", "netns", "exec", pod, *TCP])
                self.exchange(inside, (self.linux, NATIVE), address(self.linux, vlan))
                self.assertEqual(self.groups("CLNT"), before)
        for pod, (vlan, ip) in PODS.items():
            with self.subTest(pod, role="server"):
                inside = (self.node, ["ip", "netns", "exec", pod, *TCP])
                self.exchange((self.linux, NATIVE), inside, ip)
                self.assertEqual(self.groups("SERV"), list(VLANS))


if __name__ == "__main__":
    unittest.main()
