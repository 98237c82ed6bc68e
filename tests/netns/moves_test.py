# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Routes and devices change under established connections, which go on as those without an agent do."""
import itertools
import json
import unittest

from base import TALK, TIME_ENOUGH, TwoNodes
from lab.basics import sh, wait_for

HOSTS = "10.200.0.1", "10.200.0.2"  # addresses of no device of the links, as routers and clusters with BGP have them


class Moves(TwoNodes):
    def setUp(self):
        super().setUp()
        self.links = [self.present_link()]
        self.lab.link(self.a, self.b)
        self.links.append(self.present_link())
        for node, host in zip((self.a, self.b), HOSTS):
            sh("ip", "-n", node.netns, "addr", "add", f"{host}/32", "dev", "lo")
        self.route_by(0, self.a, self.b)
        self.serve(ip=HOSTS[1])

    def present_link(self):
        return {node.name: (node.device, node.ip4) for node in (self.a, self.b)}

    def route_by(self, link, *nodes):
        """Routes packets of these nodes by a link."""
        for node in nodes:
            other = self.b if node is self.a else self.a
            own, peer = HOSTS if node is self.a else HOSTS[::-1]
            device, gateway = self.links[link][node.name][0], self.links[link][other.name][1]
            sh("ip", "-n", node.netns, "route", "replace", peer, "via", gateway, "dev", device, "src", own)

    def set_link(self, link, state):
        for node in (self.a, self.b):
            sh("ip", "-n", node.netns, "link", "set", self.links[link][node.name][0], state)

    def make_again(self, link):
        """Deletes a link's devices, and makes others with their names and addresses."""
        (one, ip), (other, other_ip) = (self.links[link][node.name] for node in (self.a, self.b))
        sh("ip", "-n", self.a.netns, "link", "del", one)
        sh("ip", "-n", self.a.netns, "link", "add", one, "type", "veth", "peer", "name", other, "netns", self.b.netns)
        for node, device, address in ((self.a, one, ip), (self.b, other, other_ip)):
            sh("ip", "-n", node.netns, "addr", "add", f"{address}/24", "dev", device)
        self.set_link(link, "up")
        for node in (self.a, self.b):
            if node.agent:
                (made,) = json.loads(node.run(["ip", "-j", "link", "show", self.links[link][node.name][0]]).stdout)
                served = lambda node=node: {entry["key"]["ifindex"] for entry in self.table(node, "smc_devices")}
                wait_for(
                    "the new device to have programs", lambda made=made, served=served: made["ifindex"] in served()
                )

    def changes(self):
        """What is done, step by step."""
        yield "at first", lambda: None
        yield "the client's route moves", lambda: self.route_by(1, self.a)
        yield "the server's route moves", lambda: self.route_by(1, self.b)
        yield "the first link goes down", lambda: self.set_link(0, "down")
        yield "the first link comes up", lambda: self.set_link(0, "up")
        yield "both routes move back", lambda: self.route_by(0, self.a, self.b)
        yield "the second link's devices are made again", lambda: self.make_again(1)
        yield "both routes move to them", lambda: self.route_by(1, self.a, self.b)
        yield "the first link's devices are made again", lambda: self.make_again(0)

    def scene(self):
        """The answers that a program gets after each change."""
        talk = self.program(self.a, TALK, HOSTS[1], says="up")
        answers = {}
        for what, change in self.changes():
            change()
            self.tell(talk, "hello")
            answers[what] = self.hear(talk)
        self.route_by(0, self.a, self.b)
        return answers

    def test_a_connection_goes_on(self):
        plain = self.scene()
        self.assertEqual(set(plain.values()), {"hello"}, plain)
        self.start_agents(**TIME_ENOUGH)
        self.assertEqual(self.scene(), plain)
        self.assertPath(self.a, "smcd")

    def table_for_port_7000(self):
        """A table by which the other link is taken, for rules that this test adds."""
        by = ("via", self.links[1]["b"][1], "dev", self.links[1]["a"][0], "src", HOSTS[0])
        sh("ip", "-n", self.a.netns, "route", "replace", HOSTS[1], *by, "table", "100")

    def device_of_the_leg(self, port):
        """The device to which the leg of a connection from this port is bound. Empty: it follows the routes."""
        talk = self.program(self.a, TALK.replace(", 10)", f", 10, ('', {port}))"), HOSTS[1], says="up")
        self.tell(talk, "hello")
        self.assertEqual(self.hear(talk), "hello")
        self.assertPath(self.a, "smcd")
        # The CLC socket is shown, too. It is not bound to a device, because the application is not.
        own = ["dst", HOSTS[1], "and", "dport", "=", ":5000", "and", "sport", "!=", f":{port}"]
        leg_and_clc = self.a.run(["ss", "-Htn", "state", "established", *own]).stdout.splitlines()
        self.assertEqual(len(leg_and_clc), 2, leg_and_clc)
        self.end_program(talk)
        wait_for("the end of both", lambda: not self.a.agent.connections())
        return "".join(line.split()[2].rsplit(":", 1)[0].partition("%")[2] for line in leg_and_clc)

    def assert_leg_device(self, device, ports):
        """The agent remembers a route for a second, so a later connection may be the first one that shows a change."""
        wait_for(f"a leg at device {device!r}", lambda: self.device_of_the_leg(next(ports)) == device)

    def test_a_leg_stays_where_ports_may_decide_about_routes(self):
        """Other ports may have another route, which may lead anywhere: the leg is bound to its application's device."""
        self.start_agents(**TIME_ENOUGH)
        self.table_for_port_7000()
        first, second = (self.links[link]["a"][0] for link in (0, 1))
        others = itertools.count(7001)
        self.assert_leg_device("", others)
        for rule, ports, device in (
            (("sport", "7000", "lookup", "100"), itertools.repeat(7000), second),
            (("ipproto", "tcp", "dport", "1", "lookup", "100"), others, first),
        ):
            sh("ip", "-n", self.a.netns, "rule", "add", *rule)
            self.assert_leg_device(device, ports)
            sh("ip", "-n", self.a.netns, "rule", "del", *rule)
        sh("ip", "-n", self.a.netns, "rule", "add", "ipproto", "udp", "lookup", "100")  # does not concern TCP
        self.assert_leg_device("", others)
        self.a.run(["sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1"], check=True)
        self.assert_leg_device(first, others)


if __name__ == "__main__":
    unittest.main()
