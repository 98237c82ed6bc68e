# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Link groups with two links, a RoCE device for each, that lose one of them under load and get it back. Agents on both
sides; the TCP connections go by a third network, so that only RoCE breaks."""
import json
import os
import unittest

from flows import Flow
from lab.basics import wait_for
from lab.machines import VmLab
from programs import TCP

ROCE = {"test_link_s": 3, "link_retry_s": 2}
SIZE = int(os.environ.get("SMC_VM_BYTES", 30_000_000 if os.environ.get("SMC_VM_CORE") else 100_000_000))  # each way


class Survive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("survive", roce_wires=2))
        cls.a, cls.b = (cls.lab.machine(name, os.environ.get("SMC_VM_KERNEL", "7")) for name in "ab")
        cls.lab.boot()
        cls.port, cls.agents = 7300, None

    def start(self, **roce):
        self.stop()
        type(self).agents = [
            m.start_agent({"roce": {**ROCE, **roce}}, f"agent{self.port}-{m.name}") for m in (self.a, self.b)
        ]

    def stop(self):
        for agent in self.agents or []:
            self.assertEqual(agent.stop(), 0, agent.log()[-2000:])
        type(self).agents = None

    def tearDown(self):
        for machine in (self.a, self.b):
            for wire in (1, 2):
                machine.set_link(True, wire)

    @classmethod
    def tearDownClass(cls):
        for agent in cls.agents or []:
            agent.stop()

    def types(self):
        return [[g["type"] for g in agent.smcr_groups()] for agent in self.agents]

    def become(self, *types):
        """Waits until the only link group has these types at the two ends."""
        wait_for(f"link groups {types}", lambda: self.types() == [[t] for t in types], 40)

    def transfer(self, size=SIZE):
        """Starts a flow of checked bytes both ways, and waits until bytes arrive."""
        type(self).port += 1
        server = self.b.start_server([*TCP, "duplex", "serve", self.port, size], f"server{self.port}.log")
        client = self.a.start([*TCP, "duplex", self.b.ip4, self.port, size], f"client{self.port}.log")
        self.until_more(0)
        return client, server

    def flow(self):
        type(self).port += 1
        flow = Flow((self.a, TCP), (self.b, TCP), self.port)
        wait_for("it to move", lambda: self.moved() > 200_000, 40)
        return flow

    def moved(self):
        found = self.agents[0].connections(self.port)
        return sum(c["bytes_sent"] + c["bytes_received"] for c in found if c["path"] == "smcr")

    def until_more(self, than):
        wait_for("more bytes", lambda: self.moved() > than + 200_000, 40)

    def arrives(self, programs, size=SIZE):
        for program in programs:
            self.assertEqual(program.wait(200 + size // 1_000_000), 0, program.text())
            self.assertIn(f"{size} bytes", program.text())
        for agent in self.agents:
            self.assertEqual({c["reason"]["name"] for c in agent.ended(self.port)}, {"none"})

    def cut(self, wire):
        before = self.moved()
        self.a.set_link(False, wire)
        self.until_more(before)
        self.become("SINGLE", "SINGLE")
        self.assertEqual(self.degraded(), [1, 1])

    def degraded(self):
        """The number of link groups that have lost their second link, as the metric for alerts shows it."""
        family = "smc_agent_link_groups_degraded"
        shown = "curl -sSf http://127.0.0.1:7609/metrics | sed -n 's/^{} //p'".format(family)
        return [int(machine.sh(shown)) for machine in (self.a, self.b)]

    def lose_one_after_the_other(self):
        self.become("SYMMETRIC", "SYMMETRIC")
        flows = [self.flow(), self.flow()]  # one on each link
        self.cut(1)
        still = [max(flow.end()) for flow in flows]
        print(f"nothing for {max(still)} ms, and {min(still)} on the other link", end=" ", flush=True)
        self.a.set_link(True, 1)
        self.become("SYMMETRIC", "SYMMETRIC")
        programs = self.transfer()
        self.cut(2)
        self.arrives(programs)
        self.a.set_link(True, 2)
        self.become("SYMMETRIC", "SYMMETRIC")

    def first_contact(self):
        type(self).port += 1
        server = self.b.start_server([*TCP, "serve", self.port, 1], f"first{self.port}.log")
        self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 100000]).stdout, "100000 bytes\n")
        self.assertEqual(server.wait(), 0)
        self.assertEqual(self.agents[0].ended(self.port)[0]["path"], "smcr")

    def test_1_version_2_1(self):
        self.start()
        self.first_contact()
        self.lose_one_after_the_other()

    def test_2_what_is_shown(self):
        self.start()
        self.first_contact()
        self.become("SYMMETRIC", "SYMMETRIC")
        for agent in self.agents:
            (group,) = agent.smcr_groups()
            links = group["links"]
            self.assertEqual(len({(link["device"], link["local_gid"], link["peer_gid"]) for link in links}), 2)
            self.assertEqual({link["state"] for link in links}, {"LINK_ACTIVE"})
            shown = agent.ctl("linkgroup", "--smcr").stdout
            self.assertIn("SYMMETRIC", shown)
            rows = [r for r in agent.ctl("linkgroup", "link-show").stdout.splitlines() if "LINK_ACTIVE" in r]
            self.assertEqual(len(rows), 2)
        self.assertEqual(self.degraded(), [0, 0])
        for ours in self.agents[0].smcr_groups()[0]["links"]:
            theirs = self.agents[1].smcr_groups()[0]["links"]
            self.assertIn((ours["peer_uid"], ours["qpn"]), [(link["link_uid"], link["peer_qpn"]) for link in theirs])

    def test_3_connections_are_spread_over_both_links(self):
        self.start()
        self.first_contact()
        self.become("SYMMETRIC", "SYMMETRIC")
        type(self).port += 1
        server = self.b.start_server([*TCP, "serve", self.port, 6], f"spread{self.port}.log")
        client = self.a.start([*TCP, "client", self.b.ip4, self.port, 3_000_000, 6], f"spread-client{self.port}.log")

        def spread():
            return [link["connections"] for link in self.agents[0].smcr_groups()[0]["links"]] == [3, 3]

        wait_for("three connections on each link", spread, 40)
        self.assertEqual((client.wait(100), server.wait(100)), (0, 0))

    def test_4_a_device_goes_and_another_one_comes(self):
        self.start()
        self.first_contact()
        self.become("SYMMETRIC", "SYMMETRIC")
        programs = self.transfer()
        before = self.moved()
        self.b.run(["rdma", "link", "delete", "rxe0"], timeout=30)
        try:
            self.until_more(before)
            self.become("SINGLE", "SINGLE")  # the remaining port of b does not reach a's other port
        finally:
            self.b.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth1"])
        self.arrives(programs)
        self.become("SYMMETRIC", "SYMMETRIC")

    def test_4b_others_programs(self):
        """iperf3 on both links, one of which is cut meanwhile."""
        self.start()
        self.first_contact()
        self.become("SYMMETRIC", "SYMMETRIC")
        type(self).port += 1
        self.b.start(["iperf3", "-s", "-p", self.port, "-1"], f"iperf3-{self.port}.log")
        wait_for("it to listen", lambda: f":{self.port:04X} " in self.b.sh("cat /proc/net/tcp*"))
        client = self.a.start(["iperf3", "-c", self.b.ip4, "-p", self.port, "-P", 2, "-t", 8, "-J"], "iperf3.log")
        self.until_more(0)
        self.a.set_link(False, 1)
        self.assertEqual(client.wait(60), 0, client.text())
        streams = [[s["bytes"] for s in i["streams"]] for i in json.loads(client.text())["intervals"]]
        self.assertTrue(all(streams[-1]), streams)  # in the last second both streams move
        ended = {(c["path"], c["reason"]["name"]) for c in self.agents[0].ended(self.port, 3)}
        # its server closes its streams before it has read them to the end
        self.assertLessEqual(ended, {("smcr", "none"), ("smcr", "peer_aborted"), ("smcr", "application_reset")})

    def test_5_version_1(self):
        self.start(versions=[1])
        self.first_contact()
        self.lose_one_after_the_other()

    def test_6_who_wants_one_link_has_one(self):
        self.start(max_links=1)
        self.first_contact()
        self.become("SINGLE", "SINGLE")

    def test_7_a_network_has_its_ports(self):
        """Only RoCE ports of the same physical network serve the TCP connections on it."""
        self.start()
        devices = sorted(port["device"] for port in self.agents[0].ask("device")["smcr"])
        whole = f"{self.b.ip4}/16"
        for networks, port in (([whole], devices[1]), (["192.0.2.0/24"], devices[0])):
            self.start(pnets=[{"id": "RACK1", "devices": [devices[1]], "networks": networks}])
            self.first_contact()
            self.become("SINGLE", "SINGLE")  # the other port is on another network
            for agent in self.agents:
                (group,) = agent.smcr_groups()
                self.assertEqual([link["device"] for link in group["links"]], [port])
                rows = [row.split() for row in agent.ctl("linkgroup", "--smcr").stdout.splitlines()]
                (shown,) = [row[-1] for row in rows if "SINGLE" in row]
                self.assertEqual(shown, "RACK1" if port == devices[1] else "-")
        rows = [row.split() for row in self.agents[0].ctl("pnet").stdout.splitlines()]
        self.assertEqual(rows[0], ["PNET-ID", "Net-Dev", "IB-Dev", "IB-P", "Networks"])
        self.assertEqual(
            [[row[0], row[2], *row[4:]] for row in rows[1:]],
            [["RACK1", devices[1], "192.0.2.0/24"], ["-", devices[0], "all", "others"]],
        )
        self.start(pnets=[{"id": "RACK1", "devices": ["none"], "networks": [whole]}])  # no such device exists
        type(self).port += 1
        server = self.b.start_server([*TCP, "serve", self.port, 1], f"first{self.port}.log")
        self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 100000]).stdout, "100000 bytes\n")
        self.assertEqual(server.wait(), 0)
        self.assertEqual(self.agents[0].totals(), {("fallback", "no_device"): 1})
        self.assertIn("roce.pnets names it", self.agents[0].ctl("device").stdout)

    def test_9_the_agents_leave_nothing(self):
        self.stop()
        for machine in (self.a, self.b):
            for kind in ("qp", "mr", "pd"):
                shown = machine.run(["rdma", "resource", "show", kind]).stdout
                self.assertNotIn("comm smc-agent", shown)


if __name__ == "__main__":
    unittest.main()
