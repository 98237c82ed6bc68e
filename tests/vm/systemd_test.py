# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The service as systemd runs it: installed, enabled, with the hardening of its unit, beside a machine with an ordinary
agent. The kernel is Debian 12's own."""
import json
import os
import re
import unittest

from lab.basics import BUILD, ROOT, wait_for
from lab.machines import VmLab
from programs import TCP

CONFIG = "/usr/local/etc/smc-agent/config.json"
OVER = {
    "smcd": {"ism": {"provider": "ivshmem"}, "roce": {"enabled": False}},
    "smcr": {"local": {"smcd": False}},
}


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab = cls.enterClassContext(VmLab("systemd", area_mib=64))
        cls.a, cls.b = lab.machine("a", "6.1", systemd=True), lab.machine("b", "6.1")
        lab.boot()
        cls.b.agent = cls.b.start_agent({"ism": {"provider": "ivshmem"}})
        cls.a.modprobe("sch_ingress", "cls_bpf")
        cls.a.run(["cmake", "--install", BUILD, "--component", "agent"], timeout=300)
        cls.a.run(["systemctl", "daemon-reload"])

    def systemctl(self, *arguments, check=True):
        return self.a.run(["systemctl", *arguments], timeout=200, check=check).stdout.strip()

    def show(self, name):
        return self.systemctl("show", "smc-agent", "--property", name, "--value")

    def ask(self, *arguments):
        done = self.a.run(["smcctl", *arguments, "--json"], check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait_serving(self, pid=None):
        """Waits until an agent other than `pid` serves; its process."""

        def serving():
            agent = (self.ask("status") or {}).get("agent", {})
            spaces = self.ask("status")["namespaces"] if agent.get("serving") else []
            ready = spaces and not any("being prepared" in space["ipv4_obstacle"] for space in spaces)
            return agent["pid"] if ready and agent["pid"] != pid else None

        return wait_for("the service to serve", serving)

    def configure(self, over):
        """Writes the configuration, but does not tell the service."""
        config = {**OVER[over], "fallback": {"cache_s": 1, "budget_ms": 15000}}
        self.a.run(["sh", "-c", f"mkdir -p $(dirname {CONFIG}); cat > {CONFIG} <<END\n{json.dumps(config)}\nEND"])

    def moved(self, port, count=200_000):
        """Moves bytes; the path that the client's agent reports."""
        echo = self.b.start_server([*TCP, "serve", port, 1], f"serve{port}.log")
        done = self.a.run([*TCP, "client", self.b.ip4, port, count], timeout=120)
        self.assertEqual((done.stdout, echo.wait()), (f"{count} bytes\n", 0), done.stderr)
        found = wait_for("it to end", lambda: [c for c in self.ask("connections", "--ended") if f":{port}" in str(c)])
        return found[0]["path"]

    def test_1_enabled_and_started_with_what_the_unit_leaves_it(self):
        self.configure("smcd")
        self.systemctl("enable", "--now", "smc-agent")
        self.assertEqual((self.systemctl("is-enabled", "smc-agent"), self.show("ActiveState")), ("enabled", "active"))
        pid = self.wait_serving()
        self.assertEqual(str(pid), self.show("MainPID"))
        self.assertEqual(self.moved(7001), "smcd")
        status = dict(
            line.split(":\t", 1) for line in self.a.sh(f"cat /proc/{pid}/status").split("\n") if ":\t" in line
        )
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        with open(os.path.join(ROOT, "deploy/smc-agent.service.in")) as file:
            wanted = " ".join(re.findall("^CapabilityBoundingSet=(.*)$", file.read(), re.M)).lower().split()
        names = self.show("CapabilityBoundingSet").split()
        self.assertEqual(sorted(names), sorted(wanted))
        self.assertEqual(int(status["CapBnd"], 16).bit_count(), len(wanted))

    def test_2_reloaded_another_agent_takes_the_place_and_connections_go_on(self):
        pid = self.wait_serving()
        self.b.start([*TCP, "steps", "serve", 7100, "recv:1000", "send:1000", "wait:/job/go", "recv:1000"], "held.log")
        held = self.a.start(
            [*TCP, "steps", self.b.ip4, 7100, "send:1000", "recv:1000", "wait:/job/go", "send:1000"], "holds.log"
        )
        wait_for("the connection", lambda: [c for c in self.ask("connections") or [] if c["path"] == "smcd"])
        self.systemctl("reload", "smc-agent")
        after = self.wait_serving(pid)
        wait_for("systemd to know", lambda: self.show("MainPID") == str(after))
        self.assertEqual(self.show("ActiveState"), "active")
        self.assertEqual(len(self.ask("status")["agent"]["leaving"]), 1)
        for machine in (self.a, self.b):
            machine.write("go", "")
        self.assertEqual(held.wait(60), 0)
        self.assertIn("done", held.text())
        wait_for("the agent before to end", lambda: self.ask("status")["agent"]["leaving"] == [])
        self.assertEqual(self.show("ActiveState"), "active")
        self.assertEqual(self.moved(7101), "smcd")

    def test_3_killed_it_is_started_again(self):
        pid = self.wait_serving()
        self.a.run(["kill", "-KILL", pid])
        after = self.wait_serving(pid)
        self.assertEqual((self.show("MainPID"), self.show("NRestarts")), (str(after), "1"))
        wait_for("SMC-D again", lambda: self.moved(7201) == "smcd")

    def test_4_a_mistake_in_the_configuration_is_said_once(self):
        self.a.run(["sh", "-c", f'echo \'{{"ism": {{"provider": "none"}}}}\' > {CONFIG}'])
        self.systemctl("restart", "smc-agent", check=False)
        wait_for("it to fail", lambda: self.show("ActiveState") == "failed")
        self.assertEqual((self.show("ExecMainStatus"), self.show("NRestarts")), ("2", "0"))
        log = self.a.run(["journalctl", "-u", "smc-agent", "-n", "20", "--no-pager"]).stdout
        self.assertIn('/ism/provider: found "none"', log)
        self.configure("smcr")
        self.systemctl("start", "smc-agent")
        self.wait_serving()

    def test_5_over_roce(self):
        self.assertEqual(self.moved(7301), "smcr")

    def test_6_stopped_nothing_is_left_but_tcp(self):
        self.systemctl("stop", "smc-agent")
        self.assertEqual(self.show("ActiveState"), "inactive")
        self.assertEqual(self.a.sh("pgrep -x smc-agent || true"), "")
        echo = self.b.start_server([*TCP, "serve", 7401, 1], "serve-tcp.log")
        done = self.a.run([*TCP, "client", self.b.ip4, 7401, 1000], timeout=60)
        self.assertEqual((done.stdout, echo.wait()), ("1000 bytes\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()
