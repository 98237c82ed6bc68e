# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The bypass on Debian's kernels, where guards can be had: rules that say auto have it."""
import os
import unittest

from lab.machines import VmLab


class Kernels(unittest.TestCase):
    def test_what_the_probe_finds(self):
        with VmLab("bypass") as lab:
            nodes = [lab.machine(f"k{series}".replace(".", ""), series) for series in ("6.12", "7")]
            lab.boot()
            for node in nodes:
                agent = node.start_agent()
                print(node.name, node.sh("mkdir -p /tmp/sec; mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lsm || true"), agent.ctl("probe").stdout, agent.ctl("status").stdout[:600])
                print(agent.log()[-1500:])


if __name__ == "__main__":
    unittest.main()
