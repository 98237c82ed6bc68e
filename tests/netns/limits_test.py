# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Shapers and filters of a device, which legs would bypass: new connections are plain TCP until these are gone."""
import os
import unittest

import foreign_links
from greeting import Greeting
from lab.basics import wait_for
from lab.nodes import cgroup_mount
from rogue import within


class Limits(Greeting):
    def setUp(self):
        super().setUp()
        self.tbf = ["root", "tbf", "rate", "800mbit", "burst", "256kb", "latency", "50ms"]

    def tc(self, node, *arguments):
        node.run(["tc", *arguments[:2], "dev", node.device, *arguments[2:]], check=True)

    def limits(self, node):
        return {space["limits"] for space in node.agent.status()["namespaces"]} - {""}

    def connects_by(self, path, node=None):
        before = {node: node.agent.totals().get(("smcd", "none"), 0) for node in (self.a, self.b)}
        self.assertTrue(self.connect(node=node)["ok"])
        grown = [node.agent.totals().get(("smcd", "none"), 0) - before[node] for node in (self.a, self.b)]
        self.assertEqual(grown, [1, 1] if path == "smcd" else [0, 0])

    def comes_and_goes(self, node, says, begin, end, decision):
        begin()
        wait_for("it to be seen", lambda: any(says in limits for limits in self.limits(node)))
        before = node.agent.decisions()[decision]
        self.connects_by("tcp")
        self.assertGreater(node.agent.decisions()[decision], before)
        self.assertIn(f"device {node.device}: {says}", node.agent.ctl("status").stdout)
        end()
        wait_for("it to have gone", lambda: not self.limits(node))
        self.connects_by("smcd")

    def test_queueing_disciplines(self):
        self.start_agents()
        self.serve()
        self.connects_by("smcd")
        for node, decision in ((self.a, "SMC_OUT_LIMITED"), (self.b, "SMC_IN_LIMITED")):
            with self.subTest(decision=decision):
                self.comes_and_goes(
                    node,
                    "its queueing discipline is tbf",
                    lambda: self.tc(node, "qdisc", "replace", *self.tbf),
                    lambda: self.tc(node, "qdisc", "replace", "root", "pfifo"),  # only queues
                    decision,
                )

    def test_a_rate_of_each_flow(self):
        fq = ["tc", "qdisc", "replace", "dev", self.a.device, "root", "fq"]
        if self.a.run(fq).returncode != 0:
            self.skipTest("this kernel has no fq")
        self.start_agents()
        self.serve()
        self.connects_by("smcd")  # fq alone only queues
        self.comes_and_goes(
            self.a,
            "its queueing discipline is fq maxrate",
            lambda: self.a.run([*fq, "maxrate", "80mbit"], check=True),
            lambda: self.tc(self.a, "qdisc", "del", "root"),
            "SMC_OUT_LIMITED",
        )

    def test_filters_behind_ours(self):
        self.start_agents()
        self.serve()
        pin = self.foreign("classifier", "tc", "return 0;")
        self.tc(self.a, "qdisc", "add", "clsact")

        def begin():
            self.tc(self.a, "filter", "add", "egress", "bpf", "da", "object-pinned", pin)

        self.comes_and_goes(
            self.a,
            "it has filters at its egress (clsact)",
            begin,
            lambda: self.tc(self.a, "filter", "del", "egress"),
            "SMC_OUT_LIMITED",
        )

    def test_filters_in_front_of_ours_that_match_some_packets(self):
        self.start_agents(bpf={"tc": "clsact"})
        self.serve()
        match = ["u32", "match", "ip", "dport", "5999", "0xffff", "flowid", "1:1"]
        self.comes_and_goes(
            self.a,
            "it has filters at its egress (clsact)",
            lambda: self.tc(self.a, "filter", "add", "egress", "prio", "1", "protocol", "ip", *match),
            lambda: self.tc(self.a, "filter", "del", "egress", "prio", "1"),
            "SMC_OUT_LIMITED",
        )

    def test_a_program_in_front_of_ours_that_lets_a_leg_leave_the_host(self):
        """It ends the processing of the agent's SYNs without option 254. So the server's application answers the leg,
        which must not be taken for the client's own connection."""
        self.start_agents(bpf={"tc": "clsact"})
        self.serve()
        head = "unsigned char head[2]; if (bpf_skb_load_bytes(ctx, 14 + 20 + 12, head, 2)) return -1;"
        with open(f"/proc/{self.a.agent.pid}/cgroup") as lines:
            path = lines.read().split("0::", 1)[1].split("\n", 1)[0]
        agents = f"bpf_skb_cgroup_id(ctx) == {os.stat(cgroup_mount() + path).st_ino}"
        syn = "(head[1] & 18) == 2 && head[0] >> 4 <= 10"
        pin = self.foreign("classifier", "tc", f"{head} return {agents} && {syn} ? 0 : -1;")
        self.tc(self.a, "filter", "add", "egress", "prio", "1", "bpf", "da", "object-pinned", pin)
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.totals(), {("fallback", "no_leg"): 1})

    def test_programs_of_tcx_behind_ours(self):
        self.start_agents(times={"probe_ms": 1000})
        self.serve()
        pin, links = self.foreign("classifier", "tc", "return -1;"), []  # TCX_NEXT
        # No event tells of them: the agent looks for them with every sixth trial of the hairpins.
        self.comes_and_goes(
            self.a,
            "it has programs at its egress behind the agent's (tcx)",
            lambda: links.append(within(self.a, lambda: foreign_links.to_egress(pin, self.a.device))),
            lambda: os.close(links.pop()),
            "SMC_OUT_LIMITED",
        )

    def test_a_drivers_xdp(self):
        self.start_agents()
        self.serve()
        pin = self.foreign("xdp", "xdp", "return 2;")  # XDP_PASS
        link = f"ip link set {self.a.device}"
        self.comes_and_goes(
            self.a,
            "it has a native XDP program",
            lambda: self.a.run([*link.split(), "xdpdrv", "pinned", pin], check=True),
            lambda: self.a.run(["sh", "-c", f"{link} xdpdrv off && {link} xdpgeneric pinned {pin}"], check=True),
            "SMC_OUT_LIMITED",
        )

    def test_a_rule_may_go_past_them(self):
        self.tc(self.a, "qdisc", "replace", *self.tbf)
        rules = [
            {"name": "past", "action": "allow", "ports": ["5000"], "past_limits": True},
            {"name": "not past", "action": "allow", "ports": ["5001"]},
        ]
        self.a.start_agent(policy={"rules": rules})
        self.b.start_agent()
        self.serve()
        self.serve(port=5001)
        self.connects_by("smcd")
        self.assertTrue(self.connect(port=5001)["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_LIMITED"], 1)
        for port, said in ((5000, False), (5001, True)):
            text = self.a.agent.ctl("explain", f"{self.b.ip4}:{port}").stdout
            self.assertEqual("shapes, filters or encrypts its packets" in text, said, text)

    def test_the_other_end_of_a_pods_device(self):
        """That end is in the agent's own namespace, where CNI's bandwidth plugin limits traffic to a pod."""
        wire = self.a.ip4
        pod = self.lab.node("pod")
        self.lab.link(pod, self.a)
        pod.run(["ip", "route", "add", "default", "via", self.a.ip4], check=True)
        self.b.run(["ip", "route", "add", pod.ip4, "via", wire], check=True)
        self.a.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        pod.apps = f"{self.a.cgroup}/pods/pod1"
        os.makedirs(pod.apps)
        self.start_agents()
        self.serve()
        pod.popen(["sleep", "infinity"])
        served = lambda: len([s for s in self.a.agent.status()["namespaces"] if s["ipv4"]]) == 2
        wait_for("the pod to be served", served)
        self.connects_by("smcd", pod)
        self.tc(self.a, "qdisc", "replace", *self.tbf)  # a.device is the pod's other end
        own = f"device {self.a.device}: its queueing discipline is tbf"
        others = f"device {pod.device}: the queueing discipline of its other end is tbf"
        wait_for("both to be seen", lambda: self.limits(self.a) == {own, others}, 60)
        self.connects_by("tcp", pod)


if __name__ == "__main__":
    unittest.main()
