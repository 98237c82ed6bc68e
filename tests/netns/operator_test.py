# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An operator's work with a running agent: metrics, events, captures, draining, dry runs."""
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from base import TALK, TwoNodes
from lab.agent import Agent
from lab.basics import AGENT, CTL, wait_for
from rogue import within

PORT = 7609


class Operator(TwoNodes):
    def setUp(self):
        super().setUp()
        self.start_agents()
        self.serve()

    def get(self, path, node=None, method="GET", body=None, host=None):
        """HTTP status and text from the node's own agent."""

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
            try:
                connection.request(method, path, body=body, headers={"Host": host} if host else {})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        return within(node or self.a, ask)

    def metrics(self, node=None):
        status, text = self.get("/metrics", node)
        self.assertEqual(status, 200)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        return {name: float(value) for name, value in re.findall(r"^([a-z].*) (\S+)$", text, re.M)}

    def ctl(self, *arguments, node=None):
        done = (node or self.a).agent.ctl(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def talk(self):
        talker = self.program(self.a, TALK, self.b.ip4, says="up")
        (connection,) = self.a.agent.connections()
        return talker, connection

    def test_the_page_is_this_nodes_by_its_own_names_only(self):
        """A page of another site whose name was rebound to this node's address must not read the agent's page."""
        for host in ("localhost", "127.0.0.1:7609", "[::1]:7609", f"{socket.gethostname()}:80"):
            self.assertEqual(self.get("/api/overview", host=host)[0], 200, host)
        for path in ("/", "/page.js", "/api/overview"):
            status, text = self.get(path, host="elsewhere.example:7609")
            self.assertEqual((status, "elsewhere.example" in text), (421, True))
        self.assertEqual(self.get("/metrics", host="elsewhere.example")[0], 200)

    def test_metrics_count_what_happens(self):
        before = self.metrics()
        self.assertEqual(before['smc_agent_connections_total{path="smcd"}'], 0)
        self.assertEqual(before["smc_agent_serving"], 1)
        talker, _ = self.talk()
        self.tell(talker, "y" * 999)
        self.assertEqual(self.hear(talker), "y" * 999)
        during = self.metrics()
        self.assertEqual(during['smc_agent_connections{path="smcd"}'], 1)
        self.assertEqual(during['smc_agent_connections_total{path="smcd"}'], 1)
        self.assertEqual(during['smc_agent_sent_bytes_total{path="smcd"}'], 1000)
        self.assertEqual(during['smc_agent_received_bytes_total{path="smcd"}'], 1000)
        self.assertEqual(during['smc_agent_handshake_seconds_count{path="smcd"}'], 1)
        self.assertEqual(during['smc_agent_handshake_seconds_bucket{path="smcd",le="+Inf"}'], 1)
        self.assertEqual(during['smc_agent_link_groups{mode="smcd"}'], 1)
        self.assertGreater(during["smc_agent_dmb_bytes"], 0)
        self.assertGreater(during["process_resident_memory_bytes"], 1e6)
        self.end_program(talker)
        self.a.agent.ended(5000)
        after = self.metrics()
        self.assertEqual(after['smc_agent_connections{path="smcd"}'], 0)
        self.assertEqual(after['smc_agent_sent_bytes_total{path="smcd"}'], 1000)  # counters never fall
        self.assertEqual(self.metrics(self.b)['smc_agent_sent_bytes_total{path="smcd"}'], 1000)

    def test_a_fallback_has_its_reason(self):
        self.b.agent.stop()
        self.b.start_agent(smc={"ueids": ["ANOTHER.EID"]})
        self.assertTrue(self.connect()["ok"])
        (name,) = [key for key in self.metrics() if key.startswith("smc_agent_fallbacks_total")]
        (seen,) = [t for t in self.a.agent.status()["totals"] if t["path"] == "fallback"]
        reason = seen["reason"]
        expected = f'smc_agent_fallbacks_total{{code="{reason["code"]}",reason="{reason["name"]}"}}'
        self.assertEqual(name, expected)

    def test_probes_and_what_is_not_there(self):
        self.assertEqual(self.get("/healthz")[0], 200)
        self.assertEqual(self.get("/readyz")[0], 200)
        self.assertEqual(self.get("/nothing")[0], 404)
        self.assertEqual(self.get("/../../etc/passwd")[0], 404)
        self.assertEqual(self.get("/metrics", method="POST", body="x" * 100)[0], 405)
        self.assertEqual(self.get("/metrics", method="DELETE")[0], 405)

    def test_slow_readers_of_metrics_keep_nobody_out_for_long(self):
        def dribble():
            clients = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(40)]
            for client in clients:
                client.sendall(b"GET /healthz HT")
            return clients

        clients = within(self.a, dribble)
        began = time.monotonic()

        def answered():
            try:
                return self.get("/healthz")[0] == 200
            except OSError:
                return False

        wait_for("a place for an honest one", answered, timeout=30)
        self.assertLess(time.monotonic() - began, 20)
        self.assertTrue(self.connect()["ok"])
        for client in clients:
            client.close()

    def test_an_address_that_is_taken(self):
        self.a.agent.stop()
        taken = within(self.a, lambda: socket.create_server(("127.0.0.1", PORT)))
        self.a.start_agent()
        self.assertIn("the agent cannot listen on", self.a.agent.log())
        self.assertTrue(self.connect()["ok"])
        taken.close()

        def there():
            try:
                return self.get("/healthz")[0] == 200
            except OSError:
                return False

        wait_for("the agent to have the address", there, timeout=20)

    def test_files_that_somebody_deletes_are_made_again(self):
        """As programs do that tidy up /run: smcctl, other agents and the next agent must still find this one."""
        talker, _ = self.talk()
        node = self.a
        files = [node.control, f"{node.control}.lock", f"{node.control}.place-0"]
        shutil.rmtree(f"{self.lab.run}/ism")
        for file in files:
            os.unlink(file)
        wait_for("them to be made again", lambda: all(os.path.exists(file) for file in files))
        wait_for("sockets of both agents", lambda: len(glob.glob(f"{self.lab.run}/ism/*.ism")) == 2)
        self.assertTrue(node.agent.status()["agent"]["serving"])
        self.program(node, TALK, self.b.ip4, says="up")
        self.assertEqual([c["path"] for c in node.agent.connections(5000)], ["smcd", "smcd"])
        self.tell(talker, "still here")
        self.assertEqual(self.hear(talker), "still here")
        other = node.start([AGENT, "--config", f"{node.dir}/agent.json"], "other.log")
        self.assertEqual(other.wait(60), 1)
        self.assertIn("another smc-agent holds it?", other.text())

    def test_probes_ask_the_agent_of_their_own_container(self):
        self.a.agent.stop()
        self.a.agent = Agent(self.a, self.a.config(), command=["unshare", "--mount"]).wait_serving()
        talker, _ = self.talk()
        # An agent of another container, that is, of another mount namespace, which leaves and hangs.
        hangs = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(1)\n"
        hangs += "print('up', flush=True); time.sleep(600)"
        path = f"{self.a.control}.leaving-6"
        command = ["unshare", "--mount", "--kill-child", "/usr/bin/python3", "-c", hangs, path]
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.assertEqual(other.stdout.readline(), "up\n")

        def health(*options):
            """As kubelet runs it, which gives up after five seconds."""
            inside = ["nsenter", f"--mount=/proc/{self.a.agent.pid}/ns/mnt"]
            command = [*inside, CTL, "--socket", self.a.control, "health", *options]
            return subprocess.run(command, capture_output=True, text=True, timeout=5)

        self.assertEqual((health().returncode, health("--ready").returncode), (0, 0))
        self.ctl("health")  # from outside all containers: an agent that systemd has started has its own mounts, too
        # An agent that takes no connections for a while is ready: Kubernetes need not replace it.
        self.ctl("drain")
        self.assertFalse(self.a.agent.status()["agent"]["serving"])
        self.assertEqual((health().returncode, health("--ready").returncode), (0, 0))
        self.ctl("drain", "--end")
        # One that hangs is neither.
        self.a.agent.process.send_signal(signal.SIGSTOP)
        found = health(), health("--ready")
        self.a.agent.process.send_signal(signal.SIGCONT)
        self.assertNotIn(0, [one.returncode for one in found])
        self.assertIn("does not answer", found[0].stderr)
        self.end_program(talker)

    def test_drain(self):
        talker, _ = self.talk()
        self.assertIn("1 connections are in the agent: 1 over SMC-D, 0 over SMC-R", self.ctl("drain"))
        self.assertFalse(self.a.agent.status()["agent"]["serving"])
        self.assertEqual(self.metrics()["smc_agent_serving"], 0)
        self.assertEqual(self.get("/readyz")[0], 200)  # its programs still serve existing connections
        self.assertTrue(self.connect()["ok"])  # plain
        self.assertEqual(len(self.a.agent.connections()), 1)
        self.tell(talker, "still here")
        self.assertEqual(self.hear(talker), "still here")
        late = self.a.agent.ctl("drain", "--wait", "1")
        self.assertEqual(late.returncode, 1)  # it has not ended
        self.end_program(talker)
        self.assertIn("0 connections", self.ctl("drain", "--wait", "10"))
        self.ctl("drain", "--end")
        self.assertTrue(self.a.agent.status()["agent"]["serving"])
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")

    def test_who_waits_for_a_drain_does_not_drain_again(self):
        talker, _ = self.talk()
        command = [CTL, "--socket", self.a.control, "drain", "--wait", "60"]
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(waiting.kill)
        serves = lambda: self.a.agent.status()["agent"]["serving"]
        wait_for("the drain", lambda: not serves())
        self.ctl("drain", "--end")
        self.assertIn("the agent serves again", waiting.communicate(timeout=30)[1])
        self.assertEqual(waiting.returncode, 1)
        self.assertTrue(serves())
        self.end_program(talker)

    def test_events(self):
        self.a.agent.stop()
        self.a.start_agent(log={"level": "info"})
        follower = subprocess.Popen([CTL, "--socket", self.a.control, "events"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.kill)
        self.assertIn(" info ", follower.stdout.readline())  # a late follower, too, gets the lines of its start
        for _ in range(3):  # the follower listens now, or after the next line at most
            self.assertTrue(self.connect()["ok"])
        seen = []
        while not seen or f"server {self.b.ip4}:5000" not in seen[-1]:
            seen.append(follower.stdout.readline())
            self.assertNotEqual(seen[-1], "", seen)
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(10), 0)
        self.assertNotIn("connection 1 ", self.a.agent.log())  # the log has only lines of its level

    def test_capture(self):
        talker, connection = self.talk()
        path = os.path.join(self.a.dir, "tap.pcapng")
        command = [CTL, "--socket", self.a.control, "capture", str(connection["id"]), path]
        tap = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.addCleanup(tap.stderr.close)
        self.addCleanup(tap.kill)
        wait_for("the tap", lambda: f"connection {connection['id']} is captured" in self.a.agent.log())
        for line in ("the first line", "z" * 50000):
            self.tell(talker, line)
            self.assertEqual(self.hear(talker), line)
        self.end_program(talker)
        self.assertEqual(tap.wait(10), 0)
        self.assertRegex(tap.stderr.read(), r"100028 bytes in \d+ packets, 0 bytes lost")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        fields = ["-e", "ip.src", "-e", "tcp.len", "-e", "tcp.payload", "-e", "_ws.malformed"]
        checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
        shown = subprocess.run(
            ["tshark", "-r", path, *checks, "-T", "fields", *fields], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split("\t") for line in shown.splitlines()]
        sent = b"".join(bytes.fromhex(row[2]) for row in rows if row[0] == self.a.ip4)
        received = b"".join(bytes.fromhex(row[2]) for row in rows if row[0] == self.b.ip4)
        self.assertEqual(sent, b"the first line" + b"z" * 50000)
        self.assertEqual(received, sent)
        wrong = subprocess.run(
            ["tshark", "-r", path, *checks, "-Y", "tcp.analysis.flags or tcp.checksum.status != 1"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.assertEqual(wrong, "")

    def test_what_cannot_be_captured(self):
        done = self.a.agent.ctl("capture", "77", os.path.join(self.a.dir, "none"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no connection 77", done.stderr)
        _, connection = self.talk()
        done = self.a.agent.ctl("capture", str(connection["id"]), "/nowhere/file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/file", done.stderr)
        link, theirs = os.path.join(self.a.dir, "link"), self.a.write("theirs", "theirs")
        os.symlink(theirs, link)
        done = self.a.agent.ctl("capture", str(connection["id"]), link)
        self.assertEqual(done.returncode, 1)
        self.assertIn("it is a symbolic link", done.stderr)
        os.chown(theirs, 65534, 65534)
        done = self.a.agent.ctl("capture", str(connection["id"]), theirs)
        self.assertEqual((done.returncode, "it is another user's file" in done.stderr), (1, True))
        with open(theirs) as file:
            self.assertEqual(file.read(), "theirs")
        self.assertIn("smcd", self.ctl("connections"))

    def test_dry_run(self):
        self.talk()
        text = self.ctl("dry-run")
        self.assertIn("of 1 connections made here 1 would be offered SMC", text)
        self.assertIn(f"{self.b.ip4}:5000", text)
        (space,) = json.loads(self.ctl("dry-run", "--json", node=self.b))["namespaces"]
        self.assertEqual((space["outbound"], space["inbound"]), (0, 1))

    def test_dry_run_says_what_holds_for_the_cgroup_of_each_connection(self):
        self.a.agent.stop()
        talk = "import socket, sys; c = socket.create_connection((sys.argv[1], 5000)); print(1, flush=True); c.recv(1)"
        for name in ("web", "batch", "batch"):
            os.makedirs(f"{self.a.apps}/{name}", exist_ok=True)
            command = ["/usr/bin/python3", "-c", talk, self.b.ip4]
            process = self.a.popen(command, f"{self.a.apps}/{name}", stdout=subprocess.PIPE, text=True)
            self.addCleanup(process.stdout.close)
            self.assertEqual(process.stdout.readline(), "1\n")
        rules = [
            {"name": "no", "action": "deny", "cgroups": ["/apps/batch"]},
            {"name": "yes", "action": "allow", "cgroups": ["/apps/web"]},
        ]
        self.a.start_agent(policy={"default": "deny", "rules": rules})
        (space,) = json.loads(self.ctl("dry-run", "--json"))["namespaces"]
        said = {server["cgroup"]: (server["connections"], server["offered"]) for server in space["servers"]}
        self.assertEqual(said, {"/apps/web": (1, True), "/apps/batch": (2, False)})

    def test_explain_tells_the_namespaces_of_a_node_apart(self):
        self.a.agent.stop()
        self.a.run(["ip", "address", "add", "169.254.7.7/32", "dev", "lo"], check=True)
        self.a.start_agent(policy={"default": "allow"})
        self.pod()
        own = json.loads(self.ctl("explain", "169.254.7.7:5000", "--json"))  # another host in each namespace
        self.assertTrue(own["steered"], own)
        self.assertEqual(len([text for text in own["unless"] if text.startswith("it is in netns ")]), 1, own)
        both = json.loads(self.ctl("explain", f"{self.a.ip4}:5000", "--json"))
        self.assertEqual(len([text for text in both["unless"] if "serves both ends" in text]), 1, both)
        everywhere = json.loads(self.ctl("explain", "127.0.0.1:5000", "--json"))
        self.assertFalse(everywhere["steered"])
        self.assertNotEqual(everywhere["obstacles"], [])

    def test_explain_tells_the_cgroups_of_a_node_apart(self):
        self.a.agent.stop()
        for name in ("web", "batch", "batch/one"):
            os.makedirs(f"{self.a.cgroup}/{name}")

        def explain(rules, port=5000):
            self.a.start_agent(policy={"default": "deny", "rules": rules})
            said = json.loads(self.ctl("explain", f"{self.b.ip4}:{port}", "--json"))
            self.a.agent.stop()
            texts = [text for text in said["unless"] + said["obstacles"] if text.startswith("its cgroup is ")]
            return (said["steered"], said["allowed"], said["rule"]), texts

        batch = {"name": "no", "action": "deny", "cgroups": ["/batch", "/batch/*"]}
        found, texts = explain([batch, {"name": "yes", "action": "allow", "ports": ["5000"]}])
        self.assertEqual(found, (True, True, "yes"))
        self.assertEqual(texts, ['its cgroup is /batch, or one of 1 others like it: rule "no" denies it'])
        # Cgroups that no rule selects are not known to the programs.
        found, texts = explain([{"name": "web", "action": "allow", "cgroups": ["/apps"]}])
        self.assertEqual(found, (True, True, "web"))
        self.assertEqual(len(texts), 1, texts)
        self.assertIn("matches no rule", texts[0])
        # Where nothing is offered SMC, the rule that would allow it is named.
        found, texts = explain([batch, {"name": "yes", "action": "allow", "smcd": False}])
        self.assertEqual(found, (False, True, "yes"))
        self.assertEqual(len(texts), 2, texts)

    def test_explain_names_no_rule_where_no_rule_selects_a_cgroup(self):
        self.a.agent.stop()
        none = {"name": "none", "action": "allow", "cgroups": ["/none"]}
        agent = Agent(self.a, self.a.config(policy={"default": "deny", "rules": [none]}))
        wait_for("it to answer", agent.status)
        said = agent.ask("explain", f"{self.b.ip4}:5000")
        self.assertEqual((said["steered"], said["allowed"], said["rule"]), (False, False, None), said)
        self.assertIn("no network namespace is served", said["obstacles"])
        self.assertNotIn("decided by", agent.ctl("explain", f"{self.b.ip4}:5000").stdout)
        self.assertEqual(agent.stop(), 0)

    def test_dry_run_comes_in_pieces(self):
        """The agent does other work between the tables of two namespaces."""
        self.pod()
        spaces = lambda: [s["netns"] for s in json.loads(self.ctl("dry-run", "--json"))["namespaces"]]
        wait_for("the pod's namespace", lambda: len(spaces()) == 2)
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self.a.control)
            control.sendall(json.dumps({"command": "dry-run", "after": spaces()[0]}).encode() + b"\n")
            told = json.loads(control.makefile().read())
        self.assertEqual([s["netns"] for s in told["namespaces"]], spaces()[1:])

    def test_eids_may_change_while_it_runs(self):
        self.assertEqual(self.ctl("ueid"), "SMC-AGENT.DEFAULT\n")
        self.assertEqual(self.ctl("ueid", "add", "SECOND.EID"), "SMC-AGENT.DEFAULT\nSECOND.EID\n")
        self.assertEqual(self.ctl("ueid", "del", "SMC-AGENT.DEFAULT"), "SECOND.EID\n")
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "fallback", "peer_declined")  # none in common now
        self.ctl("ueid", "add", "SECOND.EID", node=self.b)
        self.assertEqual(self.ctl("seid"), "n/a [disabled]\n")
        for wrong in (["add"], ["show", "X"], ["add", "lower"], ["del", "NONE"]):
            self.assertIn(self.a.agent.ctl("ueid", *wrong).returncode, (1, 2))

    def test_stats_and_a_reset_of_ones_own(self):
        home = os.path.join(self.a.dir, "home")
        os.makedirs(home)

        def stats(*arguments):
            done = subprocess.run(
                [CTL, "--socket", self.a.control, "stats", *arguments, "--json"],
                env={**os.environ, "HOME": home, "XDG_STATE_HOME": ""},
                capture_output=True,
                text=True,
                check=True,
            )
            return json.loads(done.stdout)["smcd"]["connections"] if "reset" not in arguments else None

        self.assertTrue(self.connect()["ok"])
        self.assertEqual(stats(), 1)
        stats("reset")
        self.assertEqual((stats(), stats("-a")), (0, 1))
        self.assertTrue(self.connect()["ok"])
        self.assertEqual((stats(), stats("-a")), (1, 2))
        self.assertIn("SMC-D Connections Summary", self.ctl("stats"))

    def test_top_and_the_rest_are_shown(self):
        talker, connection = self.talk()
        self.tell(talker, "w" * 1000)
        self.assertIn(f"{self.b.ip4}:5000", self.ctl("top", "-n", "1"))
        moved = json.loads(self.ctl("top", "-n", "1", "--json"))
        self.assertEqual(moved["paths"]["smcd"]["connections"], 1)
        self.assertEqual([c["server"] for c in moved["connections"]], [f"{self.b.ip4}:5000"])
        self.assertIn("SMC Hostname:", self.ctl("info"))
        self.assertIn("IB-Dev", self.ctl("pnet"))
        script = self.ctl("completion", "bash")
        ask = script + 'COMP_WORDS=(smcctl ueid a); COMP_CWORD=2; _smcctl; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "add\n")
        watch = subprocess.Popen(
            [CTL, "--socket", self.a.control, "-w", "1", "--json", "connections"], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.kill)
        for _ in range(2):
            (seen,) = json.loads(watch.stdout.readline())
            self.assertEqual(seen["id"], connection["id"])
        watch.kill()
        watch.wait()


if __name__ == "__main__":
    unittest.main()
