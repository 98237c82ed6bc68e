# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Start, stop, kill, hang, restart: applications must not notice more than they have to."""
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import time
import unittest

from base import TIME_ENOUGH, TwoNodes
from lab.agent import Agent
from lab.basics import AGENT, sh, wait_for

# Downloads until the end, and prints how the connection ended.
DOWNLOAD = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'start'); c.recv(5); print('up', flush=True)
total = 5
try:
    while True:
        d = c.recv(65536)
        if not d: print('clean end', total); break
        total += len(d)
except OSError as e:
    print('error', type(e).__name__)
"""


# Sends a different pattern over each of several connections at once, and checks that it comes back.
ECHOES = """
import os, socket, sys, threading
right = []
def echo(i):
    mine = os.urandom(4096) * 100; got = b''
    c = socket.create_connection((sys.argv[1], 5000), 10)
    def write(): c.sendall(mine); c.shutdown(1)
    writer = threading.Thread(target=write); writer.start()
    while d := c.recv(65536): got += d
    writer.join(); right.append(got == mine)
for _ in range(4):
    all = [threading.Thread(target=echo, args=(i,)) for i in range(6)]
    for t in all: t.start()
    for t in all: t.join()
print(right.count(True), right.count(False))
"""

# Keeps one connection open.
HOLDS = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000), 10); c.sendall(b'x'); c.recv(1); print('ready', flush=True)
sys.stdin.readline()
"""


class Lifecycle(TwoNodes):
    def switches(self):
        """The threads of a's data path, and how often each has been scheduled."""
        threads = {}
        for task in glob.glob(f"/proc/{self.a.agent.pid}/task/*"):
            with open(f"{task}/comm") as comm, open(f"{task}/status") as status:
                if comm.read() == "smc-datapath\n":
                    (switches,) = [line for line in status if line.startswith("voluntary_ctxt")]
                    threads[task] = int(switches.split()[1])
        return threads

    def test_several_threads_share_the_connections(self):
        """Those between the same two addresses have one thread, those of other addresses another one."""
        self.start_agents(engine={"threads": 2}, **TIME_ENOUGH)
        self.serve(ip="::")
        self.program(self.a, HOLDS, self.b.ip4, says="ready")
        busiest = []
        for ip in (self.b.ip6, self.b.ip4):
            before = self.switches()
            self.assertEqual(self.a.python(ECHOES, ip, timeout=60).stdout, "24 0\n")
            grown = {task: count - before[task] for task, count in self.switches().items()}
            busiest.append(max(grown, key=grown.get))
        self.assertPath(self.a, "smcd", at_least=49)
        self.assertEqual(len(set(busiest)), 2)
        self.assertEqual(self.a.agent.status()["engine"]["threads"], 2)
        self.assertEqual(self.a.agent.stop(), 0)

    def leftovers(self, node):
        found = []
        found += [path for path in glob.glob(f"{node.pins}*") if not path.endswith("-lock")]
        found += glob.glob(f"{self.lab.run}/{node.name}.sock*")
        if os.path.exists(f"{node.cgroup}/smc-agent"):
            found.append(f"{node.cgroup}/smc-agent")
        found += [line for line in sh("bpftool", "cgroup", "show", node.cgroup).splitlines() if "smc_" in line]
        found += [
            line
            for line in sh("nsenter", f"--net=/run/netns/{node.netns}", "bpftool", "net", "show").splitlines()
            if "smc_" in line
        ]
        found += [
            line for line in sh("ip", "netns", "exec", node.netns, "ss", "-Hltnp").splitlines() if "smc-agent" in line
        ]
        return found

    def test_sigterm_leaves_nothing_behind(self):
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        gid = self.a.agent.status()["ism"]["gid"]
        self.assertTrue(os.path.exists(f"{self.lab.run}/ism/{gid}.ism"))
        self.assertNotEqual(self.leftovers(self.a), [])
        self.assertEqual(self.a.agent.stop(), 0)
        self.assertEqual(self.leftovers(self.a), [])
        self.assertFalse(os.path.exists(f"{self.lab.run}/ism/{gid}.ism"))
        self.assertTrue(self.connect()["ok"])

    def test_pins_of_somebody_else_stay_where_they_are(self):
        self.a.start_agent()
        theirs = f"{self.a.pins}/theirs"
        sh("bpftool", "map", "pin", "pinned", f"{self.a.pins}/smc_config", theirs)
        self.a.agent.stop(signal.SIGKILL)
        with self.assertRaisesRegex(RuntimeError, f"{self.a.pins} holds theirs, which no smc-agent created"):
            self.a.start_agent()
        self.assertTrue(os.path.exists(theirs))
        os.unlink(theirs)
        self.a.start_agent()
        self.assertEqual(self.a.agent.stop(), 0)
        self.assertEqual(self.leftovers(self.a), [])

    def test_sigint_is_a_stop_too(self):
        self.a.start_agent()
        self.assertEqual(self.a.agent.stop(signal.SIGINT), 0)
        self.assertEqual(self.leftovers(self.a), [])

    def test_kill_then_plain_at_once_then_a_restart_that_cleans_up(self):
        self.start_agents(bpf={"tc": "clsact"})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.a.agent.stop(signal.SIGKILL)
        self.b.agent.stop(signal.SIGKILL)
        for _ in range(3):  # P1: the first one while the heartbeat is not too old yet
            self.assertAtOnce(self.connect())
        self.a.start_agent()
        self.b.start_agent()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        self.assertEqual(len(glob.glob(f"{self.lab.run}/ism/*.ism")), 2)
        for node in (self.a, self.b):
            self.assertEqual(node.agent.stop(), 0)
            self.assertEqual(self.leftovers(node), [])

    def test_a_hung_agent_is_left_alone_within_a_second(self):
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        for node in (self.a, self.b):
            node.agent.send_signal(signal.SIGSTOP)
        time.sleep(1)  # the documented limit
        seen = self.connect(timeout=2)
        self.assertTrue(seen["ok"], seen)
        for node in (self.a, self.b):
            node.agent.send_signal(signal.SIGCONT)
        wait_for("the agents to serve again", lambda: self.a.agent.status() and self.b.agent.status())
        before = self.a.agent.totals()[("smcd", "none")]
        wait_for("steering to go on", lambda: self.connect()["ok"] and self.a.agent.totals()[("smcd", "none")] > before)

    def streaming_server(self):
        return self.program(
            self.b,
            """
import socket, time
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(); print('ready', flush=True)
while True:
    c, _ = s.accept()
    try:
        c.recv(5); c.sendall(b'begin')
        while True: c.sendall(b'x' * 1000); time.sleep(0.001)
    except OSError as e: print('server', type(e).__name__, flush=True)
""",
            says="ready",
        )

    def ends_with_an_error(self, victim, how):
        self.start_agents()
        server = self.streaming_server()
        client = self.program(self.a, DOWNLOAD, self.b.ip4, says="up")
        wait_for("bytes to flow", lambda: any(c["bytes_received"] > 20000 for c in self.a.agent.connections()))
        getattr(self, victim).agent.stop(how)
        self.assertEqual(client.communicate(timeout=20)[0], "error ConnectionResetError\n")  # L1
        self.assertIn(self.hear(server), ("server ConnectionResetError", "server BrokenPipeError"))
        if how == signal.SIGKILL:
            left = self.b if victim == "a" else self.a
            wait_for("the failure to be counted", lambda: sum(left.agent.broken().values()) == 1)

    def test_killed_client_agent_ends_connections_with_an_error(self):
        self.ends_with_an_error("a", signal.SIGKILL)

    def test_killed_server_agent_ends_connections_with_an_error(self):
        self.ends_with_an_error("b", signal.SIGKILL)

    def test_stopped_agent_ends_connections_with_an_error(self):
        self.ends_with_an_error("a", signal.SIGTERM)

    def test_plain_connections_outlive_the_agent(self):
        self.a.start_agent()
        self.streaming_server()
        client = self.program(self.a, DOWNLOAD, self.b.ip4, says="up")
        self.assertEqual(self.a.agent.decisions()["SMC_ANSWER_PLAIN"], 1)
        received = self.received(client.pid)
        self.a.agent.stop(signal.SIGKILL)
        wait_for("more bytes", lambda: self.received(client.pid) > received + 10000)
        self.a.start_agent()
        wait_for("more bytes", lambda: self.received(client.pid) > received + 20000)
        self.assertIsNone(client.poll())

    def received(self, pid):
        """Bytes that a process of node a has received on its one connection to port 5000."""
        shown = self.a.run(["ss", "-Htnip", "dport", "=", ":5000"]).stdout
        line = shown.split(f"pid={pid},")[1]
        return int(line.split("bytes_received:")[1].split()[0])

    def test_a_restarted_peer_is_a_first_contact_again(self):
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.b.agent.stop(signal.SIGKILL)
        wait_for("the link group to go", lambda: not self.a.agent.status()["groups"]["smcd"])
        self.b.start_agent()
        self.assertTrue(self.connect()["ok"])
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd", at_least=3)

    def test_an_agent_in_a_time_namespace(self):
        """The agent's clock may be behind the clock by which the BPF programs note times, or ahead of it."""
        self.b.start_agent()
        self.serve()
        for uptime in ("1000000", "-1"):
            with self.subTest(uptime=uptime):
                clock = ["unshare", "--time", "--monotonic", uptime, "--fork", "--kill-child"]
                self.a.start_agent(command=clock)
                for _ in range(3):
                    self.assertTrue(self.connect()["ok"])
                self.assertPath(self.a, "smcd", at_least=3)
                wait_for("hairpins to be swept", lambda: not self.table(self.a, "smc_hairpins"))
                with open(f"/proc/{self.a.agent.pid}/task/{self.a.agent.pid}/children") as children:
                    os.kill(int(children.read()), signal.SIGTERM)
                self.assertEqual(self.a.agent.process.wait(60), 0)

    def test_a_second_agent_is_kept_out(self):
        self.a.start_agent()
        second = subprocess.run(
            [AGENT, "--config", f"{self.a.dir}/agent.json"], capture_output=True, text=True, timeout=20
        )
        self.assertEqual(second.returncode, 1)
        self.assertIn("another smc-agent", second.stderr)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])

    def test_pins_are_one_agents_whatever_its_control_socket_is(self):
        self.a.start_agent()
        self.b.start_agent()
        self.serve()
        config = self.a.config(control={"socket": f"{self.a.dir}/other.sock"})
        path = self.a.write("other.json", json.dumps(config))
        second = subprocess.run([AGENT, "--config", path], capture_output=True, text=True, timeout=20)
        self.assertEqual(second.returncode, 1)
        self.assertIn(
            f"bpf.pin_path {self.a.pins} (an agent with another control.socket has it: stop that one", second.stderr
        )
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        self.a.agent.stop(signal.SIGKILL)
        self.a.start_agent(control={"socket": f"{self.a.dir}/other.sock"})  # no agent has the pins

    def test_signals_that_say_nothing_to_it(self):
        self.start_agents()
        self.serve()
        for number in (
            *(
                signal.SIGXCPU,
                signal.SIGRTMIN,
                signal.SIGRTMAX,
                signal.SIGHUP,
                signal.SIGUSR1,
                signal.SIGUSR2,
                signal.SIGALRM,
                signal.SIGVTALRM,
                signal.SIGPROF,
            ),
            *(signal.SIGIO, signal.SIGPWR, signal.SIGPIPE, signal.SIGQUIT),
        ):
            self.a.agent.send_signal(number)
        wait_for("its status", lambda: '"decisions"' in self.a.agent.log())  # SIGQUIT
        self.assertIn("SIGHUP changes nothing: the configuration is read at the start", self.a.agent.log())
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")

    def test_a_log_that_nobody_reads(self):
        """Lines of the log are dropped and counted; no thread waits for the reader."""
        fifo = os.path.join(self.a.dir, "unread")
        os.mkfifo(fifo)
        self.a.start_agent(command=["/bin/sh", "-c", 'exec "$@" 2<>"$0"', fifo])
        self.b.start_agent()
        self.serve()

        def dropped():
            self.a.agent.send_signal(signal.SIGQUIT)  # thousands of characters
            return self.a.agent.status()["agent"]["log_lines_dropped"]

        wait_for("lines to be dropped", dropped)
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        self.assertEqual(self.a.agent.stop(), 0)

    def test_what_is_no_socket_stays_in_the_fabrics_directory(self):
        os.makedirs(f"{self.lab.run}/ism", mode=0o700)
        for name in ("notes.ism", "other"):
            with open(f"{self.lab.run}/ism/{name}", "w") as file:
                file.write("mine")
        self.a.start_agent()
        self.assertLessEqual({"notes.ism", "other"}, set(os.listdir(f"{self.lab.run}/ism")))

    def test_a_fabric_where_others_may_write_is_refused(self):
        shared = f"{self.lab.run}/shared"
        os.mkdir(shared)
        path = self.a.write("agent.json", json.dumps(self.a.config(ism={"directory": shared})))
        for mode, owner in ((0o777, 0), (0o1777, 0), (0o720, 0), (0o702, 0), (0o700, 65534)):
            with self.subTest(f"{mode:o} of user {owner}"):
                os.chown(shared, owner, 0)
                os.chmod(shared, mode)
                done = subprocess.run([AGENT, "--config", path], capture_output=True, text=True, timeout=20)
                self.assertEqual(done.returncode, 1, done.stderr)
                words = f"the ISM directory {shared} belongs to another user, or others may write to it"
                self.assertIn(words, done.stderr)
                found = os.stat(shared)
                self.assertEqual((stat.S_IMODE(found.st_mode), found.st_uid), (mode, owner))
                self.assertEqual((os.listdir(shared), self.leftovers(self.a)), ([], []))
        # nothing else prevented it
        os.chown(shared, 0, 0)
        os.chmod(shared, 0o755)
        self.a.start_agent(ism={"directory": shared})
        self.assertEqual(os.listdir(shared), [self.a.agent.status()["ism"]["gid"] + ".ism"])
        self.assertEqual(stat.S_IMODE(os.stat(shared).st_mode), 0o755)

    def test_what_the_readme_says_removes_everything(self):
        """After SIGKILL, without another agent."""
        for tc in ("auto", "clsact"):
            with self.subTest(tc=tc):
                self.start_agents(bpf={"tc": tc})
                server = self.serve()
                self.assertTrue(self.connect()["ok"])
                self.assertPath(self.a, "smcd")
                for node in (self.a, self.b):
                    node.agent.stop(signal.SIGKILL)
                    attached = [
                        json.loads(sh("bpftool", "-j", "link", "show", "pinned", link))["prog_id"]
                        for link in glob.glob(f"{node.pins}/smc_device_*")
                    ]
                    has_tcx = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 6)
                    self.assertEqual(len(attached), 2 if tc == "auto" and has_tcx else 0)
                    self.assertTrue(self.leftovers(node))
                    for directory in glob.glob(f"{node.pins}*"):
                        shutil.rmtree(directory)
                    for side in ("ingress", "egress"):
                        sh(
                            "tc",
                            "-n",
                            node.netns,
                            "filter",
                            "del",
                            "dev",
                            node.device,
                            side,
                            "prio",
                            "21325",
                            check=False,
                        )
                    left = [found for found in self.leftovers(node) if "smc_" in found or node.pins in found]
                    self.assertEqual(left, [])
                    exists = lambda program: subprocess.run(
                        ["bpftool", "prog", "show", "id", str(program)], capture_output=True
                    )
                    wait_for("the programs to go", lambda: all(exists(one).returncode for one in attached), 30)
                self.assertTrue(self.connect()["ok"])
                self.end_program(server)

    def test_a_bpf_file_system_that_would_end_with_a_container_is_not_mounted(self):
        alone = 'while umount -l /sys/fs/bpf; do :; done; exec "$@"'
        agent = Agent(self.a, self.a.config(), command=["unshare", "--mount", "sh", "-c", alone, "sh"])
        self.assertEqual(agent.process.wait(60), 1)
        self.assertIn("cannot start: pinning maps: the node has no bpf file system on /sys/fs/bpf", agent.log())


if __name__ == "__main__":
    unittest.main()
