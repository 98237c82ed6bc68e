# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The benchmark runs on every path and writes what others read. The measured values are not judged here."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/bench.py")
ROW = {
    *("path", "variant", "case", "unit", "ours", "baseline", "baseline_is", "ratio", "lowest", "highest", "cpu_us"),
    *("baseline_cpu_us", "beside"),
}

MACHINE = {
    "kernel",
    "processors",
    "system call",
    "wake-up, same processor",
    "copy of 64 MiB",
    "mitigations",
    "steal time",
}


def bench(*arguments):
    """Runs the benchmark: its rows, and its output."""
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-B", BENCH, "--json", file.name, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        written = json.load(file)
        if not MACHINE <= set(written["machine"]):
            raise AssertionError(written["machine"])
        return written["results"], done.stdout


class Bench(unittest.TestCase):
    SHORT = ("--rounds", "1", "--seconds", "0.1")

    def test_every_path_of_one_machine(self):
        rows, printed = bench(*self.SHORT, "--case", "64 B round trip, one core")
        self.assertRegex(printed, r"(?m)^system call: +\d+ ns$")
        self.assertRegex(printed, r"steal time: [0-9.]+ s\n$")
        found = [(row["path"], row["variant"]) for row in rows]
        self.assertEqual(
            found,
            [
                *(("plain", variant) for variant in ("nobody", "hooks", "asked", "denied")),
                *(("tuned", "default"), ("tuned", "lo"), ("bypass", "force"), ("smcd", "local"), ("ivshmem", "file")),
            ],
        )
        for row in rows:
            self.assertEqual(set(row), ROW)
            self.assertEqual(row["case"], "64 B round trip, one core")
            self.assertAlmostEqual(row["ratio"], row["baseline"] / row["ours"], delta=0.01)

    def test_every_case(self):
        rows, _ = bench(*self.SHORT, "--path", "smcd-local")
        cases = ("64 B round trip", "4 KiB round trip", "64 KiB stream", "256 KiB stream", "64 B beside four streams")
        crowd = ("64 B beside four streams, mean", "four streams beside 64 B")
        self.assertEqual(
            [row["case"] for row in rows],
            [f"{case}, {cores}" for cores in ("one core", "a core each") for case in (*cases, "connections", *crowd)],
        )

    def test_beside_connections_at_rest(self):
        (row,), _ = bench(*self.SHORT, "--path", "smcd-at-rest", "--case", "beside 100,")
        self.assertEqual(set(row), ROW)
        self.assertEqual(row["baseline_is"], "SMC-D with none at rest")

    def test_what_a_connection_takes(self):
        (row,), printed = bench("--counts", "--path", "smcd-local", "--case", "connections, one core")
        self.assertEqual((row["path"], row["of"]), ("smcd", "connection"))
        self.assertGreater(sum(row["bpf_us"].values()), 0)
        self.assertEqual(set(row["counts"]), {"agent 1", "agent 2", "programs", "programs over TCP"})
        self.assertGreater(row["counts"]["agent 1"]["epoll_wait"], 0)
        self.assertGreater(row["counts"]["programs over TCP"]["switches"], 0)
        # Each program makes and closes one socket for a connection, whoever carries it.
        for programs in ("programs", "programs over TCP"):
            self.assertAlmostEqual(row["counts"][programs]["connect"], 1, delta=0.3)
        self.assertIn("BPF programs", printed)

    def test_one_operation_as_a_timeline(self):
        command = [sys.executable, "-B", BENCH, "--timeline", "64 B round trip, one core"]
        with tempfile.TemporaryDirectory() as directory:
            picture = os.path.join(directory, "timeline.svg")
            draws = importlib.util.find_spec("matplotlib") is not None
            done = subprocess.run([*command, *(["--plot", picture] if draws else [])], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            if draws:
                self.assertEqual(ElementTree.parse(picture).getroot().tag.rpartition("}")[2], "svg")
        lines = done.stdout.splitlines()
        title = r"smcd \(local\): 64 B round trip, one core: [0-9.]+ us"
        begin = next(number for number, line in enumerate(lines) if re.fullmatch(title, line))
        seen = [line.split(None, 3)[3] for line in lines[begin + 2 :] if not line.endswith(": -")]
        # A round trip crosses the programs and the agents in this order, and the answer comes back.
        wanted = ["client: sendto", "client's agent: recvmsg", "server's agent: sendmsg", "server: recvfrom"]
        self.assertEqual(sorted(seen.index(one) for one in wanted), [seen.index(one) for one in wanted], done.stdout)

    def test_unknown_paths_are_named(self):
        with self.assertRaisesRegex(AssertionError, "--path: nonsense is none of bypass, bypass-force, ivshmem"):
            bench("--path", "nonsense")
        with self.assertRaisesRegex(AssertionError, "--path: smcd is none of ivshmem"):
            bench("--vm", "--path", "smcd")


if __name__ == "__main__":
    unittest.main()
