# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The benchmark in virtual machines runs and writes what others read. The measured values are not judged here."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/bench.py")


class Bench(unittest.TestCase):
    def test_every_path(self):
        for path, case, names in (
            ("smcr", "contact", ["first contact, a core each", "subsequent contact, a core each"]),
            ("ivshmem-vm", "64 B round trip", ["64 B round trip, a core each"]),
        ):
            with self.subTest(path), tempfile.NamedTemporaryFile() as file:
                command = [sys.executable, "-B", BENCH, "--vm", "--path", path, "--case", case, "--json", file.name]
                done = subprocess.run(
                    [*command, "--rounds", "1", "--seconds", "0.5"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                self.assertEqual(done.returncode, 0, done.stdout)
                rows = json.load(file)["results"]
                self.assertEqual([row["case"] for row in rows], names)
                for row in rows:
                    self.assertEqual(row["path"], path.removesuffix("-vm"))
                    self.assertGreater(row["ratio"], 0)


if __name__ == "__main__":
    unittest.main()
