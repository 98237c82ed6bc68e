# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Another agent takes the place of the agent that serves: no connection is reset, and none fails."""
import contextlib
import glob
import json
import os
import signal
import subprocess
import unittest

from base import CHURN, TALK, TwoNodes
from lab import refusals
from lab.agent import Agent
from lab.basics import AGENT, CTL, sh, wait_for


# A server whose kernel makes its socket with the first byte, and a client that is silent until it is told a line.
LATE_SERVER = """
import socket
s = socket.socket(); s.setsockopt(6, 9, 60); s.bind(('', 5001)); s.listen(); print('ready', flush=True)  # defers
c, _ = s.accept()
while d := c.recv(100): c.sendall(d)
"""
LATE_CLIENT = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5001), 10); c.settimeout(10); print('up', flush=True)
for line in sys.stdin: c.sendall(line.strip().encode()); print(c.recv(100).decode(), flush=True)
"""


def sockets(pid):
    found = set()
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(path))
    return {link for link in found if link.startswith("socket:")}


def alive(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


class Upgrade(TwoNodes):
    overrides = {}
    command = ()

    def setUp(self):
        super().setUp()
        self.start_agents(**self.overrides, command=self.command)
        self.addCleanup(self.end_agents)
        self.serve()

    def end_agents(self):
        """Ends all agents of the node, even if they were started by another process."""
        for node in (self.a, self.b):
            sockets = [node.control, *glob.glob(f"{node.control}.leaving-*")]
            pids = [s["agent"]["pid"] for s in (self.status_at(node, socket) for socket in sockets) if s]
            for pid in pids * 2:  # the second signal ends agents that wait
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            wait_for("the agents to end", lambda: not any(alive(pid) for pid in pids))

    def status_at(self, node, socket):
        done = subprocess.run([CTL, "--socket", socket, "status", "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def upgrade(self, node):
        before = node.agent.status()["agent"]["pid"]
        done = node.agent.ctl("upgrade")
        self.assertEqual((done.returncode, done.stderr), (0, ""), node.agent.log()[-2000:])
        self.assertIn(f"has taken over from pid {before}", done.stdout)
        wait_for("the next agent to serve", node.agent.prepared)
        return done.stdout

    def left(self, node):
        """The only agent that is leaving: its socket, and its status."""
        (socket,) = node.agent.status()["agent"]["leaving"]
        return socket, self.status_at(node, socket)

    def talk(self):
        talker = self.program(self.a, TALK, self.b.ip4, says="up")
        self.assert_talks(talker)
        return talker

    def assert_talks(self, talker, size=100_000):
        self.tell(talker, "z" * size)
        self.assertEqual(self.hear(talker), "z" * size)

    def assert_smcd(self, count):
        for node in (self.a, self.b):
            self.assertEqual([c["path"] for c in node.agent.connections(5000)], ["smcd"] * count)

    def programs(self, node):
        """How many agents have programs on the node's device; those of tcx are counted by the pins of their links."""
        filters = [
            sh("tc", "-n", node.netns, "filter", "show", "dev", node.device, side).count(f"{name}:[")
            for side, name in (("ingress", "smc_in"), ("egress", "smc_out"))
        ]
        self.assertEqual(*filters)
        links = glob.glob(f"{node.pins}*/smc_device_*")
        self.assertEqual(len(links) % 2, 0)
        return len(links) // 2 + filters[0]

    def assert_alone(self, node):
        """Nothing is left of earlier agents."""
        wait_for("everybody to have left", lambda: not node.agent.status()["agent"]["leaving"])
        wait_for("their pins to go", lambda: glob.glob(f"{node.pins}-*") == [f"{node.pins}-lock"])
        self.assertEqual(self.programs(node), 1)


class Tcx(Upgrade):
    def test_connections_stay_and_new_ones_have_the_next_agent(self):
        first = self.talk()
        said = self.upgrade(self.a)
        self.assertIn("1 over SMC-D", said)
        before, after = self.a.agent.process.pid, self.a.agent.status()["agent"]["pid"]
        self.assertEqual(sockets(before) & sockets(after), set())  # it inherits none
        self.assert_talks(first)
        self.upgrade(self.b)
        self.assert_talks(first)
        second = self.talk()
        self.assert_smcd(1)
        self.assertEqual(self.programs(self.a), 2)
        # A third agent, while the first one still has its connection.
        self.upgrade(self.a)
        third = self.talk()
        self.assertEqual(len(self.a.agent.status()["agent"]["leaving"]), 2)
        for talker in (first, second, third):
            self.assert_talks(talker)
        for socket in self.a.agent.status()["agent"]["leaving"]:
            seen = self.status_at(self.a, socket)
            self.assertEqual(seen["agent"]["obstacle"], "another agent takes over")
            self.assertEqual(seen["agent"]["live"], 1)
        self.end_program(first)
        self.end_program(second)
        for node in (self.a, self.b):
            self.assertEqual(node.agent.process.wait(60), 0)
            self.assert_alone(node)
        self.assert_talks(third)

    def test_a_device_that_comes_up_while_an_agent_leaves(self):
        """The programs of the agent that leaves may be behind those of the next one, and are no limit."""
        self.a.agent.stop()
        self.a.start_agent(times={"look_ms": 200, "probe_ms": 200})
        talker = self.talk()
        self.upgrade(self.a)
        leaving = self.a.agent.process
        leaving.send_signal(signal.SIGSTOP)  # so it attaches second
        before = len(glob.glob(f"{self.a.pins}*/smc_device_*"))
        sh("ip", "-n", self.a.netns, "link", "add", "later", "type", "veth", "peer", "name", "other")
        for device in ("later", "other"):
            sh("ip", "-n", self.a.netns, "link", "set", device, "up")

        links = lambda: len(glob.glob(f"{self.a.pins}*/smc_device_*"))
        wait_for("the next agent's programs", lambda: links() == before + 4)  # two devices, in and out
        leaving.send_signal(signal.SIGCONT)
        wait_for("the programs of the one that leaves", lambda: links() == before + 8)
        # The limits of devices are looked at after a change; this change comes after both have attached.
        sh("ip", "-n", self.a.netns, "link", "set", "later", "mtu", "1400")
        for _ in range(20):
            self.assert_talks(self.talk())
        self.assertEqual(self.a.agent.decisions().get("SMC_OUT_LIMITED", 0), 0)
        self.assert_talks(talker)

    def test_under_load(self):
        talker = self.talk()
        churns = [self.program(self.a, CHURN, self.b.ip4, says="up") for _ in range(3)]
        for node in (self.a, self.b, self.a, self.b):
            self.upgrade(node)
            self.assert_talks(talker)
        wait_for("connections with the last agents", lambda: self.a.agent.totals().get(("smcd", "none"), 0) > 20)
        for churn in churns:
            self.tell(churn, "stop")
            right, *wrong = self.hear(churn).split(" ", 1)
            self.assertEqual(wrong, [])
            self.assertGreater(int(right), 20)
        self.assert_talks(talker)

    def test_who_cannot_serve_takes_nobodys_place(self):
        talker = self.talk()
        self.a.write("agent.json", "{")
        done = self.a.agent.ctl("upgrade")
        self.assertEqual(done.returncode, 1)
        self.assertIn("its log says why. This one goes on", done.stderr)
        self.assertIn("agent.json: ", self.a.agent.log())
        self.a.write("agent.json", json.dumps(self.a.agent.config))
        self.assert_talks(talker)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])
        self.talk()
        self.assert_smcd(2)
        self.upgrade(self.a)

    def test_a_parent_that_ignores_its_children(self):
        """An ignored SIGCHLD is inherited, and the kernel would tell the agent nothing of its successor's end."""
        self.a.agent.stop()
        self.a.agent = Agent(self.a, self.a.config(), command=["env", "--ignore-signal=CHLD"]).wait_serving()
        self.a.write("agent.json", "{")
        self.assertEqual(self.a.agent.ctl("upgrade").returncode, 1)
        self.a.write("agent.json", json.dumps(self.a.agent.config))
        self.upgrade(self.a)

    def test_another_directory_of_pins_needs_a_stop(self):
        """Nobody would look after what the agent that leaves has pinned."""
        changed = {**self.a.agent.config, "bpf": {"pin_path": f"{self.a.pins}-elsewhere"}}
        self.a.write("agent.json", json.dumps(changed))
        done = self.a.agent.ctl("upgrade")
        self.assertEqual(done.returncode, 1)
        self.assertIn(
            f"that agent's bpf.pin_path is {self.a.pins}: stop that agent before you change it",
            self.a.agent.log(),
        )
        self.a.write("agent.json", json.dumps(self.a.agent.config))

    def test_who_follows_events_follows_the_next_agent(self):
        follower = subprocess.Popen([CTL, "--socket", self.a.control, "events"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.kill)
        self.hear_of(follower, "serving: ")
        self.upgrade(self.a)
        self.hear_of(follower, "serving: ")
        self.talk()
        self.hear_of(follower, f"server {self.b.ip4}:5000")
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(10), 0)

    def hear_of(self, follower, text):
        while text not in (line := follower.stdout.readline()):
            self.assertNotEqual(line, "")

    def test_in_a_pod_another_pod_is_to_be_started(self):
        self.a.agent.stop()
        self.a.start_agent(command=["env", "KUBERNETES_SERVICE_HOST=10.96.0.1"])
        done = self.a.agent.ctl("upgrade")
        self.assertEqual(done.returncode, 1)
        self.assertIn("start another pod instead", done.stderr)

    def test_upgrading_nobody(self):
        done = subprocess.run([CTL, "--socket", f"{self.a.dir}/nobody.sock", "upgrade"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no agent answers", done.stderr)

    def test_one_that_is_killed_while_it_is_leaving(self):
        talker = self.talk()
        self.upgrade(self.a)
        os.kill(self.left(self.a)[1]["agent"]["pid"], signal.SIGKILL)
        self.tell(talker, "x")
        self.assertIn("error", self.hear(talker))
        second = self.talk()
        self.assertEqual(self.programs(self.a), 2)
        self.upgrade(self.a)
        self.end_program(second)
        self.assert_alone(self.a)
        self.talk()
        self.assertEqual([c["path"] for c in self.a.agent.connections(5000)], ["smcd"])

    def test_a_server_that_accepts_when_its_agent_has_left(self):
        self.program(self.b, LATE_SERVER, says="ready")
        client = self.program(self.a, LATE_CLIENT, self.b.ip4, says="up")
        self.assertEqual([c["path"] for c in self.b.agent.connections(5001)], ["smcd"])
        self.upgrade(self.b)
        for text in ("first", "second"):
            self.tell(client, text)
            self.assertEqual(self.hear(client), text)

    def test_the_next_agent_dies(self):
        """Its supervisor starts another one."""
        talker = self.talk()
        self.upgrade(self.a)
        for _ in range(2):
            pid = self.a.agent.status()["agent"]["pid"]
            os.kill(pid, signal.SIGKILL)

            def another_serves():
                status = self.a.agent.status()
                return status and status["agent"]["pid"] != pid and status["agent"]["serving"]

            wait_for("another one", another_serves)
            self.assert_talks(talker)
        wait_for("its namespace", self.a.agent.prepared)
        self.talk()
        self.assertEqual([c["path"] for c in self.a.agent.connections(5000)], ["smcd"])
        # If it is told to end, it is not started again, and its supervisor need not wait.
        os.kill(self.a.agent.status()["agent"]["pid"], signal.SIGTERM)
        self.end_program(talker)
        self.assertEqual(self.a.agent.process.wait(60), 0)
        self.assertIsNone(self.a.agent.status())

    def test_two_who_upgrade_at_once(self):
        """One of them is told that an upgrade is under way; other agents that want the place do no harm."""
        talker = self.talk()
        before = self.a.agent.status()["agent"]["pid"]
        command = [CTL, "--socket", self.a.control, "upgrade"]
        asked = [self.a.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        other = self.a.start([AGENT, "--config", f"{self.a.dir}/agent.json", "--take-over"], "agent.log")
        said = [process.communicate(timeout=60) for process in asked]
        self.assertLessEqual(sum(process.returncode == 0 for process in asked), 1, said)

        def settled():
            status = self.a.agent.status()
            return status and status["agent"]["serving"] and status["agent"]["pid"] != before

        wait_for("another agent to serve", settled)
        self.assert_talks(talker)
        self.talk()
        self.end_program(talker)

        # An agent that was started here has the place, has given up, or has had it and waits to be ended.
        def known():
            agent = self.a.agent.status()["agent"]
            left = [self.status_at(self.a, socket) for socket in agent["leaving"]]
            return other.poll() is not None or other.pid in [agent["pid"], *(s["agent"]["pid"] for s in left if s)]

        wait_for("the other one to have had the place, or to have given up", known)

    def test_started_by_somebody_else(self):
        """As in a pod: the supervisor that starts the next agent ends the old one, or would restart it."""
        talker = self.talk()
        before = self.a.agent.process
        command = [AGENT, "--config", f"{self.a.dir}/agent.json", "--take-over"]
        self.a.agent.process = self.a.start(command, "agent.log")

        def serves():
            status = self.a.agent.status()
            return status and status["agent"]["pid"] == self.a.agent.pid

        wait_for("it to serve", serves)
        self.assert_talks(talker)
        before.send_signal(signal.SIGTERM)
        self.assert_talks(talker)
        self.talk()
        self.assertIsNone(before.poll())
        self.end_program(talker)
        self.assertEqual(before.wait(60), 0)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])

    def test_nobody_is_there(self):
        self.a.agent.stop()
        self.a.agent = Agent(self.a, self.a.config(), command=())
        self.a.agent.wait_serving()
        second = self.a.start([AGENT, "--config", f"{self.a.dir}/agent.json"], "second.log")
        self.assertEqual(second.wait(60), 1)
        self.assertIn("another smc-agent holds it?", second.text())
        self.talk()
        self.assert_smcd(1)


class Clsact(Upgrade):
    overrides = {"bpf": {"tc": "clsact"}}
    test_connections_stay_and_new_ones_have_the_next_agent = Tcx.test_connections_stay_and_new_ones_have_the_next_agent
    test_under_load = Tcx.test_under_load
    test_a_server_that_accepts_when_its_agent_has_left = Tcx.test_a_server_that_accepts_when_its_agent_has_left


class Drain(Upgrade):
    overrides = {"upgrade": {"drain_s": 1}, "stop": {"drain_s": 60}}

    def test_what_does_not_end_in_time_is_reset(self):
        talker = self.talk()
        self.upgrade(self.a)
        self.assertEqual(self.a.agent.process.wait(60), 0)
        self.tell(talker, "x")
        self.assertIn("error", self.hear(talker))
        self.assertIn("stopping, 1 connections are reset", self.a.agent.log())
        self.talk()
        self.assertEqual([c["path"] for c in self.a.agent.connections(5000)], ["smcd"])

    def test_a_stop_waits_for_connections(self):
        talker = self.talk()
        self.a.agent.send_signal(signal.SIGTERM)
        wait_for("it to say so", lambda: not self.a.agent.status()["agent"]["serving"])
        self.assertEqual(self.a.agent.status()["agent"]["obstacle"], "it is being stopped")
        self.assertTrue(self.connect()["ok"])
        self.assert_talks(talker)
        self.assertEqual(len(self.a.agent.connections(5000)), 1)
        self.end_program(talker)
        self.assertEqual(self.a.agent.process.wait(60), 0)

    def test_a_second_signal_is_the_end(self):
        talker = self.talk()
        self.a.agent.send_signal(signal.SIGTERM)
        wait_for("it to say so", lambda: not self.a.agent.status()["agent"]["serving"])
        self.assertEqual(self.a.agent.stop(), 0)
        self.tell(talker, "x")
        self.assertIn("error", self.hear(talker))


class WithoutLooks(Upgrade):
    """A kernel whose BPF programs cannot inspect sockets: their ends must be events, also for a leaving agent."""

    command = refusals.command("`bpf_probe_read_kernel`")

    def test_the_agent_that_leaves_hears_of_ends(self):
        first, second = self.talk(), self.talk()
        self.upgrade(self.a)
        hairpins = f"{self.a.pins}-leaving-0/smc_hairpins"
        count = lambda: len(json.loads(sh("bpftool", "-j", "map", "dump", "pinned", hairpins)))
        self.assertEqual(count(), 4)
        self.end_program(first)
        wait_for("the hairpins of one to go", lambda: count() == 2)
        self.assert_talks(second)


if __name__ == "__main__":
    unittest.main()
