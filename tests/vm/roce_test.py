# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The RoCE transport on a kernel as our users have it: RDMA, but no net/smc."""
import os
import unittest

from lab.basics import test_program
from lab.machines import VmLab


class Roce(unittest.TestCase):
    def test_links_over_soft_roce(self):
        with VmLab("roce") as lab:
            machine = lab.machine("a", os.environ.get("SMC_VM_KERNEL", "7"))
            lab.boot()
            self.assertNotEqual(
                machine.run(
                    ["modprobe", "-n", "-d", machine.kernel.modules, "-S", machine.kernel.version, "smc"], check=False
                ).returncode,
                0,
            )
            done = machine.run([test_program("smc-roce-tests")], timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-2000:])
            self.assertIn("All tests passed", done.stdout)


if __name__ == "__main__":
    unittest.main()
