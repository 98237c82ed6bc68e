# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The command line of smc-agent: options, faulty configurations, and the built-in default."""
import json
import os
import subprocess
import tempfile
import unittest

from lab.basics import AGENT, CTL
from lab.nodes import Lab, cgroup_mount


class BuiltInDefault(unittest.TestCase):
    def test_it_runs_and_leaves_nothing(self):
        """It runs in cgroup, mount and network namespaces of its own; its cgroup root is one of our sub-cgroups."""
        with Lab("default") as lab:
            node = lab.node("a")
            script = f"""
                set -e
                mount --make-rprivate /
                umount -l {cgroup_mount()}
                mount -t cgroup2 none {cgroup_mount()}
                mount -t tmpfs none /run
                mount -t bpf none /sys/fs/bpf
                {AGENT} 2>/run/log & pid=$!
                for i in $(seq 100); do {CTL} status --json >/run/status 2>/dev/null && break; sleep 0.1; done
                ls /sys/fs/bpf/smc-agent >/run/pins
                kill $pid; wait $pid
                cat /run/status
                cd /
                echo "left: $(ls -d sys/fs/bpf/smc-agent run/smc-agent/control* .{cgroup_mount()}/smc-agent \
                    2>/dev/null)"
            """
            done = node.run(["unshare", "--mount", "--cgroup", "sh", "-c", script], timeout=40)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            text, left = done.stdout.rsplit("left: ", 1)
            self.assertEqual(left.strip(), "")
            status = json.loads(text)
            self.assertTrue(status["agent"]["serving"])
            self.assertEqual((status["ism"]["chid"], status["pin_path"]), ("0xff00", "/sys/fs/bpf/smc-agent"))


class CommandLine(unittest.TestCase):
    def agent(self, *arguments):
        return subprocess.run([AGENT, *arguments], capture_output=True, text=True, timeout=20)

    def with_config(self, text, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            return self.agent("--config", file.name, *arguments)

    def test_default_configuration_is_printed_and_good(self):
        printed = self.agent("--print-default-config")
        self.assertEqual(printed.returncode, 0)
        self.assertEqual(sum(map(len, json.loads(printed.stdout).values())), 10)
        everything = self.agent("--print-default-config", "--all")
        self.assertEqual(json.loads(everything.stdout)["ism"]["chid"], "0xff00")
        for text in (printed.stdout, everything.stdout):
            checked = self.with_config(text, "--check-config")
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        self.assertEqual(self.agent("--all").returncode, 2)

    def test_a_bad_configuration_is_one_line_and_exit_2(self):
        for text, words in (
            (' {"limits": {"connections": "many"}}', '/limits/connections: found "many", allowed: integer'),
            ('{"nonsense": 1}', "/nonsense: found an unknown key"),
            ("{", "not JSON"),
            ("[]", "allowed: object"),
            ('{"node": {"host_name": "a\\u0000b"}}', "/node/host_name: found a text with a zero byte"),
            ('{"limits": {"connections": 1e999}}', "not JSON"),
        ):
            done = self.with_config(text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(words, done.stderr)
        missing = self.agent("--config", "/does/not/exist")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("No such file", missing.stderr)
        self.assertIn("found more than the", self.agent("--config", "/dev/zero").stderr)
        self.assertIn("Is a directory", self.agent("--config", "/tmp").stderr)
        self.assertEqual(self.agent("--config", "", "--check-config").returncode, 2)  # empty is not the default

    def test_a_wrong_place_is_an_error_and_nothing_is_touched(self):
        with tempfile.TemporaryDirectory() as place:
            open(f"{place}/file", "w").close()
            os.chmod(place, 0o777)
            good = {"control": {"socket": f"{place}/control.sock"}, "ism": {"directory": f"{place}/ism"}}
            for section, value, words in (
                ("control", {"socket": f"{place}/file"}, "is something else than a socket"),
                ("cgroup", {"root": place}, "is no cgroup v2"),
                ("cgroup", {"root": f"{place}/nothing"}, "No such file"),
            ):
                done = self.with_config(json.dumps({**good, section: value}))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(sorted(os.listdir(place)), ["file"])

    def test_version_and_usage(self):
        self.assertRegex(self.agent("--version").stdout, r"smc-agent \d")
        self.assertEqual(self.agent("--nonsense").returncode, 2)
        ctl = subprocess.run([CTL, "--socket", "/does/not/exist", "status"], capture_output=True, text=True)
        self.assertEqual(ctl.returncode, 3)
        self.assertIn("is smc-agent running?", ctl.stderr)


if __name__ == "__main__":
    unittest.main()
