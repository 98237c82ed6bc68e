# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The agent on a kernel that refuses a feature that it needs: each feature alone, and lockdown.

The table in docs/install.md has the results of the first test; SMC_WRITE=1 writes it there.
"""
import os
import re
import unittest

from lab import refusals
from lab.basics import ROOT, wait_for
from lab.machines import VmLab
from programs import TCP

PAGE = os.path.join(ROOT, "docs/install.md")
TABLE = re.compile(r"^\| refused \| the agent \|\n(\|.*\n)+", re.MULTILINE)


class Refused(unittest.TestCase):
    """Debian's kernel of 6.12 has all that the agent asks for."""

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("refused"))
        cls.node, cls.peer = cls.lab.machine("node", "6.12"), cls.lab.machine("peer", "7")
        cls.lab.boot()
        cls.peer_agent = cls.peer.start_agent()
        cls.echo = cls.peer.start_server([*TCP, "serve", 7001, 1000], "serve7001.log")

    def path(self, agent):
        """The path of a connection to the peer."""
        before = len(agent.connections(7001, ended=True))
        done = self.node.run([*TCP, "client", self.peer.ip4, 7001, 10_000])
        self.assertEqual(done.stdout, "10000 bytes\n")
        for line in agent.status()["namespaces"]:
            if not line["ipv4"]:
                return "plain TCP: " + re.sub(r" \(what.*", "", line["ipv4_obstacle"])
        return agent.ended(7001, before + 1)[-1]["path"]

    def outcome(self, name, command):
        """The outcome as in the table, and the exit code of an agent that served."""
        try:
            agent = self.node.start_agent(name=name, command=command)
        except RuntimeError as error:
            (program,) = re.findall(r"refuses (?:to attach )?BPF (?:program|map) (\w+)", str(error).splitlines()[-1])
            return f"does not start: `{program}`"
        try:
            path = self.path(agent)
            out = refusals.left_out(agent)
        finally:
            code = agent.stop()
        self.assertEqual(code, 0, agent.log()[-2000:])
        if path != "smcr":
            return path
        lost = sorted({what.split(":")[0] for what in out.values()})
        return f"without {', '.join(lost)}" if lost else "has all"

    def test_1_each_alone(self):
        rows = [("nothing", self.outcome("nothing", ()))]
        for number, what in enumerate(refusals.REFUSALS):
            rows.append((what, self.outcome(f"agent{number}", refusals.command(what))))
        table = "| refused | the agent |\n|---|---|\n" + "".join(f"| {what} | {seen} |\n" for what, seen in rows)
        with open(PAGE) as file:
            text = file.read()
        if os.environ.get("SMC_WRITE"):
            with open(PAGE, "w") as file:
                file.write(TABLE.sub(lambda _: table, text, count=1))
        else:
            self.assertIn(table, text)

    def test_2_a_trial_of_the_bypass_that_failed_is_not_the_last(self):
        agent = self.node.start_agent({"times": {"retrial_ms": 2000}}, "late", refusals.late(3))
        try:
            said = agent.log()
            self.assertIn("the bypass is off for rules that say auto", said)
            wait_for("another trial", lambda: agent.ask("probe")["automatic"])
            self.assertIn("another run of the probe has found no obstacle", agent.log())
        finally:
            self.assertEqual(agent.stop(), 0)

    def test_3_lockdown(self):
        """Lockdown is set when all modules are loaded: those of this package are not signed."""
        self.node.sh("mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security")
        seen = {}
        for mode in ("integrity", "confidentiality"):
            self.node.sh(f"echo {mode} > /sys/kernel/security/lockdown")
            seen[mode] = self.outcome(mode, ())
        self.assertEqual(seen["integrity"], "has all")
        self.assertIn("keepalive", seen["confidentiality"])
        with open(PAGE) as file:
            text = file.read()
        for mode, what in seen.items():
            self.assertIn(f"`lockdown={mode}`: {what}", " ".join(text.split()))

    def test_4_nothing_is_left(self):
        wait_for("the programs to go", lambda: "name smc_" not in self.node.run(["bpftool", "prog", "show"]).stdout)
        self.assertEqual(self.node.sh("ls /sys/fs/bpf"), "")


if __name__ == "__main__":
    unittest.main()
