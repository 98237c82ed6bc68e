# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The bypass on Debian's kernels, which accept its guards: rules that say auto use it there. 6.1 has no bypass."""
import json
import os
import unittest

from lab.basics import CTL
from lab.machines import VmLab

HERE = os.path.dirname(os.path.abspath(__file__))
STORY = os.path.join(HERE, "bypass_story.py")
PEER = os.path.join(os.path.dirname(HERE), "netns", "pair_peer.py")


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("bypass"))
        cls.machines = {
            series: cls.lab.machine("k" + series.replace(".", ""), series) for series in ("6.1", "6.12", "7")
        }
        cls.lab.boot()

    def test_automatic_rules(self):
        for series in ("6.12", "7"):
            with self.subTest(kernel=series):
                machine = self.machines[series]
                machine.modprobe("veth")
                machine.run(["python3", "-B", STORY, "prepare"])
                agent = machine.start_agent()
                verdict = agent.ask("probe")
                self.assertTrue(verdict["automatic"], agent.ctl("probe").stdout)
                done = machine.run(["python3", "-B", STORY, "tell", CTL, PEER], timeout=180)
                self.assertEqual(
                    json.loads(done.stdout),
                    {
                        "none": [10],
                        "splice": [["EINVAL", 10], 10, ["splice", 10]],
                        "inq": [10, 10],
                        "urgent": [10, 1, "!", 10, 10],
                        "waits": [10, 10, 10],
                    },
                )
                self.assertEqual(agent.stop(), 0)
                self.assertEqual(machine.sh("ls /sys/fs/bpf"), "")

    def test_a_kernel_that_has_none_of_it(self):
        machine = self.machines["6.1"]
        agent = machine.start_agent({"local": {"bypass": "force"}})
        self.assertFalse(agent.ask("probe")["tried"])
        refused = {one["program"] for one in agent.status()["left_out"]}
        self.assertIn("smc_bypass_received", refused)  # 6.1 has no such tracepoint
        self.assertFalse(agent.ask("bypass")["available"])
        self.assertEqual(agent.stop(), 0)
        self.assertEqual(machine.sh("ls /sys/fs/bpf"), "")


if __name__ == "__main__":
    unittest.main()
