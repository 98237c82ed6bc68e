# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Start, stop, kill, hang, restart: applications must not notice more than they have to."""
import glob
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from base import TIME_ENOUGH, TwoNodes
from lab.basics import AGENT, CTL, sh, wait_for
from lab.nodes import Lab, cgroup_mount

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


# Makes network namespaces with a listener in each, until it is told to end. Argument: how many.
NAMESPACES = """
import ctypes, os, signal, socket, sys
def one():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # with its parent
    assert ctypes.CDLL(None).unshare(0x40000000) == 0
    s = socket.socket(); s.listen(); signal.pause()
children = [os.fork() or one() for _ in range(int(sys.argv[1]))]
sys.stdin.readline()
for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
"""

# Attaches as many programs to devices as the kernel accepts, which let everything pass. Arguments: the devices.
FILL = """
import ctypes, errno, platform, socket, struct, sys
PROG_LOAD, PROG_ATTACH, SCHED_CLS, TCX_INGRESS, TCX_EGRESS = 5, 8, 3, 46, 47
BPF = 321 if platform.machine() == 'x86_64' else 280
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    got = libc.syscall(BPF, command, ctypes.create_string_buffer(attributes), len(attributes))
    return got if got >= 0 else -ctypes.get_errno()
code = ctypes.create_string_buffer(struct.pack('<BBhi', 0xb7, 0, 0, -1) + struct.pack('<BBhi', 0x95, 0, 0, 0))
licence = ctypes.create_string_buffer(b'GPL')
load = struct.pack('IIQQ', SCHED_CLS, 2, ctypes.addressof(code), ctypes.addressof(licence))
for _ in range(64):
    program = bpf(PROG_LOAD, load)
    for name in sys.argv[1:]:
        for way in (TCX_INGRESS, TCX_EGRESS):
            done = bpf(PROG_ATTACH, struct.pack('IIIIIIQ', socket.if_nametoindex(name), program, way, 0, 0, 0, 0))
            if done < 0 and done != -errno.ERANGE: sys.exit(errno.errorcode[-done])  # which is: it is full
"""


class Lifecycle(TwoNodes):
    def test_several_threads_share_the_connections(self):
        self.start_agents(engine={"threads": 3}, **TIME_ENOUGH)
        self.serve()
        self.assertEqual(self.a.python(ECHOES, self.b.ip4, timeout=60).stdout, "24 0\n")
        self.assertPath(self.a, "smcd", at_least=24)
        threads = {}  # threads of the data path, and how often each has been scheduled
        for task in glob.glob(f"/proc/{self.a.agent.pid}/task/*"):
            with open(f"{task}/comm") as comm, open(f"{task}/status") as status:
                if comm.read() == "smc-datapath\n":
                    (switches,) = [line for line in status if line.startswith("voluntary_ctxt")]
                    threads[task] = int(switches.split()[1])
        self.assertEqual(len(threads), 3)
        self.assertGreater(min(threads.values()), 10)
        self.assertEqual(self.a.agent.status()["engine"]["threads"], 3)
        self.assertEqual(self.a.agent.stop(), 0)

    def leftovers(self, node):
        found = []
        if os.path.exists(node.pins):
            found.append(node.pins)
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

    def test_devices_that_cannot_be_had_are_named_and_rested_from(self):
        names = [f"d{i}" for i in range(6)]  # more than are prepared at once
        for one, other in zip(names[::2], names[1::2]):
            sh("ip", "-n", self.a.netns, "link", "add", one, "type", "veth", "peer", "name", other)
        for name in names:
            sh("ip", "-n", self.a.netns, "link", "set", name, "up")
        done = self.a.python(FILL, *names)
        if "EINVAL" in done.stderr:
            self.skipTest("this kernel has no tcx")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.a.start_agent(bpf={"tc": "tcx"})

        def obstacle():
            return self.a.agent.status()["namespaces"][0]["ipv4_obstacle"]

        wait_for("a device to be named", lambda: any(f"device {name}: " in obstacle() for name in names))
        before = self.processor_time(self.a.agent.pid)
        time.sleep(2)
        self.assertLess(self.processor_time(self.a.agent.pid) - before, 0.5)

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
                self.assertEqual(self.a.agent.process.wait(10), 0)

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
            *(signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF),
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

    def test_a_full_agent_lets_connections_be_plain(self):
        self.start_agents(limits={"connections": 2, "namespace_percent": 100, "cgroup_percent": 100})
        self.serve()
        self.hold(self.a, 2)
        wait_for("the agent to be full", lambda: not self.a.agent.status()["agent"]["serving"])
        for _ in range(3):
            self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_AGENT_FULL"], 3)
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})
        self.assertIn("NOT SERVING, it is full", self.a.agent.ctl("status").stdout)

    HOLD = """
import socket, sys, time
held = []
for _ in range(int(sys.argv[2])):
    c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); held.append(c)
print('held', flush=True); time.sleep(3600)"""

    def hold(self, node, count, **kwargs):
        """A program that keeps connections open."""
        return self.program(node, self.HOLD, self.b.ip4, count, says="held", **kwargs)

    def test_many_devices_of_one_namespace_are_nobody_elses_business(self):
        self.start_agents()
        self.serve()
        pod = self.lab.node("pod")
        pod.apps = f"{self.a.cgroup}/pods/pod1"
        os.makedirs(pod.apps)
        for i in range(60):
            sh("ip", "-n", pod.netns, "link", "add", f"br{i}", "up", "type", "bridge")
        pod.popen(["sleep", "infinity"])
        self.connects_until(lambda: self.a.agent.prepared() == 2)
        pods = [s for s in self.a.agent.status()["namespaces"] if "br0" in s["devices"]]
        self.assertEqual([(len(s["devices"]), s["ipv4"]) for s in pods], [(60, True)])

    def connects_until(self, condition):
        """Connects again and again until the condition holds, and prints the time of the slowest."""
        slowest, count, end = 0.0, 0, time.monotonic() + 120
        while time.monotonic() < end and not condition():
            began = time.monotonic()
            self.assertTrue(self.connect()["ok"])
            slowest, count = max(slowest, time.monotonic() - began), count + 1
        print(f"{self._testMethodName}: {count} connects, the slowest took {slowest:.3f} s", file=sys.stderr)
        self.assertTrue(condition())
        self.assertGreater(count, 0)
        self.assertPath(self.a, "smcd", at_least=(count + 1) // 2)

    def test_many_new_namespaces_are_nobody_elses_business(self):
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        served = lambda: len(self.a.agent.status()["namespaces"])
        maker = self.program(self.a, NAMESPACES, 60)
        self.connects_until(lambda: served() == 61)
        self.tell(maker, "end")
        wait_for("them to be closed", lambda: served() == 1, 20)

    def test_very_many_cgroups_of_one_are_nobody_elses_business(self):
        """More cgroups than the agent has entries. They take entries only from each other."""
        self.start_agents()
        self.serve()
        self.assertTrue(self.connect()["ok"])
        for number in range(17000):
            os.makedirs(f"{self.a.cgroup}/crowd/{number // 1000}/{number}")
        self.connects_until(lambda: self.a.agent.status()["cgroups"]["left_out"] > 0)
        self.a.apps = f"{self.a.cgroup}/pods/deep/down/pod1"
        os.makedirs(self.a.apps)
        self.connect()
        unknown = lambda: self.a.agent.decisions()["SMC_OUT_NOT_ENROLLED"]

        def enrolled():
            before = unknown()
            self.assertTrue(self.connect()["ok"])
            return unknown() == before

        wait_for("a new cgroup to be served", enrolled, 60)

    def test_one_namespace_or_cgroup_does_not_use_up_the_agent(self):
        self.a.start_agent(limits={"connections": 6, "namespace_percent": 50, "cgroup_percent": 34})
        self.b.start_agent()
        self.serve()
        other = f"{self.a.cgroup}/other"
        os.makedirs(other)
        self.hold(self.a, 3)  # a cgroup may have two of them
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 2})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_CGROUP_FULL"], 1)
        self.hold(self.a, 2, cgroup=other)  # the namespace may have one of them
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 3})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_NETNS_FULL"], 1)
        pod = self.pod()
        self.assertTrue(self.connect(self.b.ip4, node=pod)["ok"])
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 4})


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
        ):
            done = self.with_config(text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(words, done.stderr)
        missing = self.agent("--config", "/does/not/exist")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("No such file", missing.stderr)
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
