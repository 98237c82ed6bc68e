# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The systemd unit: systemd understands it, and the agent needs nothing that it forbids."""
import os
import re
import subprocess
import unittest

from base import TwoNodes
from lab.basics import AGENT, CTL, ROOT

UNIT = os.path.join(ROOT, "deploy/smc-agent.service.in")


def settings():
    with open(UNIT) as file:
        text = file.read()
    found = {}
    for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", text, re.M):
        found[key] = f"{found[key]} {value}" if key in found else value
    return text, found


def allowed(words):
    """The system calls of a SystemCallFilter."""
    calls = set()
    for word in words.split():
        if word.startswith("@"):
            shown = subprocess.run(
                ["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True
            ).stdout
            inner = [line.strip() for line in shown.splitlines()[1:] if not line.strip().startswith("#")]
            calls |= allowed(" ".join(inner))
        else:
            calls.add(word)
    return calls


class Unit(TwoNodes):
    def test_systemd_understands_it(self):
        text, _ = settings()
        for name, value in {"SYSCONF": "/etc", "SBIN": os.path.dirname(AGENT), "BIN": os.path.dirname(CTL)}.items():
            text = text.replace(f"@CMAKE_INSTALL_FULL_{name}DIR@", value)
        path = self.a.write("smc-agent.service", re.sub(r"^Documentation.*\n", "", text, flags=re.M))
        done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_every_system_call_that_it_makes_is_allowed(self):
        trace = os.path.join(self.a.dir, "trace")
        self.a.start_agent(command=("strace", "-f", "-qq", "-c", "-S", "name", "-U", "name", "-o", trace))
        self.b.start_agent()
        self.serve()
        for _ in range(5):
            self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        for command in (["status"], ["dry-run"], ["events", "--once"], ["drain"], ["probe"], ["explain", "10.0.0.1:1"]):
            self.assertEqual(self.a.agent.ctl(*command).returncode, 0)
        subprocess.run(["pkill", "-TERM", "-P", str(self.a.agent.pid)], check=True)  # strace's child
        self.a.agent.process.wait(20)
        with open(trace) as file:
            used = {line.strip() for line in file} - {"total", "syscall", ""}
        used = {name for name in used if re.fullmatch(r"[a-z0-9_]+", name)}
        self.assertIn("bpf", used)
        self.assertIn("setns", used)
        _, unit = settings()
        self.assertEqual(used - allowed(unit["SystemCallFilter"]), set())

    def test_smcctl_is_told_of_the_agents_socket(self):
        """If control.socket is not the default, smcctl is told."""
        _, unit = settings()
        for key in ("ExecReload", "ExecStop"):
            self.assertIn("smcctl --socket ${SOCKET} ", unit[key])

    def test_capabilities_are_those_of_the_pod(self):
        with open(os.path.join(ROOT, "deploy/kubernetes/smc-agent.yaml")) as file:
            pod = set(re.findall(r"^ +- ([A-Z_]+) +# ", file.read(), re.M))
        self.assertEqual({name.removeprefix("CAP_") for name in settings()[1]["CapabilityBoundingSet"].split()}, pod)


if __name__ == "__main__":
    unittest.main()
