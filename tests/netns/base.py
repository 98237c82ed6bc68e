# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Helpers of the namespace tests: two linked nodes for each test class, small servers and clients."""
import contextlib
import glob
import json
import os
import subprocess
import sys
import unittest

from lab import rawtcp
from lab.basics import Timeout, map_entries, wait_for
from lab.nodes import Lab

HOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lock_holder.py")

ECHO = """
import socket, sys, threading
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family); s.setsockopt(1, 2, 1); s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(4096)
print('ready', flush=True)
accepted = 0
def answer(d, peer):
    return f'{peer[0]} {peer[1]}'.encode() if d == b'who' else str(accepted).encode() if d == b'accepted' else d
def serve(c, peer):
    try:
        while True:
            d = c.recv(65536)
            if not d: break
            c.sendall(answer(d, peer))
    except OSError: pass
    c.close()
while True:
    c, peer = s.accept()
    accepted += 1
    threading.Thread(target=serve, args=(c, peer), daemon=True).start()
"""

# Prints what a connection saw: {"ok", "echo", "who", "own", "peer", "error", "took": seconds of a successful connect()}
CLIENT = """
import socket, sys, json, time
out = {}
try:
    c = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
    c.settimeout(float(sys.argv[3]) if len(sys.argv) > 3 else 15)
    for level, option, value in json.loads(sys.argv[4]) if len(sys.argv) > 4 else []:
        c.setsockopt(level, option, bytes.fromhex(value) if isinstance(value, str) else value)
    began = time.monotonic(); c.connect((sys.argv[1], int(sys.argv[2]))); out['took'] = time.monotonic() - began
    c.sendall(b'who'); out['who'] = c.recv(100).decode()
    c.sendall(b'hello'); out['echo'] = c.recv(100).decode()
    own, peer = c.getsockname(), c.getpeername()
    out.update(own=own[0] + ' ' + str(own[1]), peer=peer[0] + ' ' + str(peer[1]), ok=out['echo'] == 'hello')
except OSError as e:
    import errno
    out.update(ok=False, error=errno.errorcode.get(e.errno, str(e)))
print(json.dumps(out))
"""


# Prints "up" when it is connected; then sends each line of its stdin, and prints the answer. An error ends it.
TALK = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000), 10); c.sendall(b'x'); c.recv(1); print('up', flush=True)
for line in sys.stdin:
    data = line.strip().encode(); got = b''
    try:
        c.sendall(data)
        while len(got) < len(data):
            more = c.recv(65536)
            if not more: raise OSError(0, 'end')
            got += more
        print(got.decode(), flush=True)
    except OSError as e:
        print('error', e, flush=True)
"""

# Makes one connection after the other, each with its own bytes there and back, until it is told to stop.
CHURN = """
import os, socket, sys, threading
stop, right, wrong = threading.Event(), 0, []
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set())).start()
print('up', flush=True)
while not stop.is_set():
    mine = os.urandom(30000); got = b''
    try:
        c = socket.create_connection((sys.argv[1], 5000), 10); c.settimeout(10); c.sendall(mine); c.shutdown(1)
        while d := c.recv(65536): got += d
        c.close()
        if got != mine: raise OSError(0, f'{len(got)} bytes')
        right += 1
    except OSError as e:
        wrong.append(str(e))
print(right, *wrong, flush=True)
"""


# A configuration with long timeouts: every connection is accelerated, even on a busy machine.
TIME_ENOUGH = {
    "fallback": {"budget_ms": 10000},
    "smc": {"step_timeout_ms": 10000},
    # The bypass is tried once, and with time enough: later trials have sockets of their own in its tables.
    "times": {
        "stale_ms": 10000,
        "standstill_ms": 10000,
        "settle_ms": 20000,
        "answer_ms": 30000,
        "control_ms": 30000,
        "trial_ms": 500,
        "retrial_ms": 86400000,
    },
}


class TwoNodes(unittest.TestCase):
    """Node a has the client, node b the server; each test has a new lab."""

    def setUp(self):
        self.lab = Lab(f"{type(self).__name__}.{self._testMethodName}")
        self.addCleanup(self.lab.close)
        self.addCleanup(self.show_logs)
        self.a, self.b = self.lab.node("a"), self.lab.node("b")
        self.lab.link(self.a, self.b)

    def show_logs(self):
        outcome = self._outcome.result
        if any(test is self for test, _ in outcome.failures + outcome.errors):
            for node in self.lab.nodes.values():
                print(f"--- agent {node.name}\n{node.agent_log()[-5000:]}", file=sys.stderr)

    def hold_lock(self, node, *to):
        """A program of the node that holds the lock of a socket: see lock_holder.py."""
        command = ["/usr/bin/python3", "-B", HOLDER, *map(str, to)]
        holder = node.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end_program, holder)
        if (answer := self.hear(holder)) != "held":
            self.skipTest(answer)
        return holder

    def lock_helpers(self, node):
        """The processes that wait for locks in place of the node's agent."""
        found = []
        for path in glob.glob("/proc/[0-9]*/status"):
            with contextlib.suppress(OSError), open(path) as file:
                status = dict(line.split(":", 1) for line in file if ":" in line)
                if status["Name"].strip() == "smc-lock-helper" and int(status["PPid"]) == node.agent.pid:
                    found.append(int(status["Pid"]))
        return found

    def is_alive(self, pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "Z":
                    return True
            return any(self.is_waiting(task) for task in glob.glob(f"/proc/{pid}/task/*"))
        return False

    @staticmethod
    def is_waiting(task):
        """Whether the thread is in state D (uninterruptible)."""
        with contextlib.suppress(OSError), open(f"{task}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "D"
        return False

    def use_bridge(self, node):
        """The node's device becomes a port of a bridge, which has its IPv4 address: packets pass both devices."""
        for step in (
            ["link", "add", "br0", "type", "bridge"],
            ["addr", "flush", "dev", node.device],
            ["link", "set", node.device, "master", "br0"],
            ["addr", "add", f"{node.ip4}/24", "dev", "br0"],
            ["link", "set", "br0", "up"],
        ):
            node.run(["ip", *step], check=True)

    def know(self, *cgroups):
        """Waits until a's agent knows cgroups that were made since it started: until then their programs have TCP."""
        ids = {os.stat(cgroup).st_ino for cgroup in cgroups}
        wait_for("the agent to know the cgroups", lambda: ids <= {e["key"] for e in self.table(self.a, "smc_cgroups")})

    def start_agents(self, **overrides):
        self.a.start_agent(**overrides)
        self.b.start_agent(**overrides)

    def program(self, node, script, *arguments, says=None, **kwargs):
        """Starts a Python program that reads and prints lines, and waits for its first line, `says`."""
        command = ["/usr/bin/python3", "-B", "-c", script, *map(str, arguments)]
        process = node.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **kwargs)
        self.addCleanup(self.end_program, process)
        if says is not None:
            self.assertEqual(self.hear(process), says)
        return process

    def end_program(self, process):
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # it has not read all of its stdin
            process.stdin.close()

    def hear(self, process):
        return process.stdout.readline().rstrip("\n")

    def tell(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()

    def serve(self, node=None, ip=None, port=5000):
        return self.program(node or self.b, ECHO, ip or "0.0.0.0", port, says="ready")

    def accepted(self, port=5000):
        """How many connections the server has accepted, without the one that asks for the number."""
        ask = f"import socket; s = socket.create_connection(('{self.b.ip4}', {port})); s.send(b'accepted')"
        return int(self.b.python(ask + "; print(s.recv(9).decode())").stdout) - 1

    def pod(self):
        """Another namespace that a's agent serves, linked to b. From now on b's address is its address on this link."""
        pod = self.lab.node("pod")
        self.lab.link(pod, self.b)
        pod.apps = f"{self.a.cgroup}/pods/pod1"
        os.makedirs(pod.apps)
        pod.popen(["sleep", "infinity"])
        wait_for("the pod's namespace", lambda: self.a.agent.prepared() == 2)
        return pod

    def connect(self, ip=None, port=5000, node=None, timeout=15, options=()):
        done = (node or self.a).python(CLIENT, ip or self.b.ip4, port, timeout, json.dumps(list(options)), timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assertAtOnce(self, seen):
        """The connection worked, and its connect() took less than a second, after which TCP would repeat the SYN."""
        self.assertTrue(seen["ok"], seen)
        self.assertLess(seen["took"], 0.95, seen)

    def raw(self, node, own_ip, *arguments):
        """A hand-made TCP peer in `node`; returns the running process."""
        command = ["/usr/bin/python3", "-B", rawtcp.__file__, node.device, own_ip, *map(str, arguments)]
        process = node.popen(command, stdout=-1, text=True)
        self.addCleanup(process.stdout.close)
        return process

    def raw_results(self, process, timeout=60):
        out, _ = process.communicate(timeout=timeout)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def table(self, node, name):
        """The entries of a map of the BPF programs; needs no agent that answers."""
        return map_entries(f"{node.pins}/{name}")

    def decisions(self, node):
        """The decisions that the BPF programs have counted; needs no agent that answers."""
        return {e["key"]: sum(cpu["value"] for cpu in e["values"]) for e in self.table(node, "smc_counters")}

    def processor_time(self, pid):
        """Seconds of processor time that the agent has used."""
        with open(f"/proc/{pid}/stat") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resources(self):
        """Resources that b's agent holds for its peers."""
        agent = self.b.agent
        with open(f"/proc/{agent.pid}/maps") as maps:
            dmbs = sum("smc-dmb" in line for line in maps)
        status = agent.status()
        return {
            "fds": len(os.listdir(f"/proc/{agent.pid}/fd")),
            "dmbs": dmbs,
            "registered": status["ism"]["dmbs"],
            "connections": len(status["connections"]),
        }

    def assertGivenBack(self, before, timeout=60):
        """b's agent comes to hold no more than before the test."""
        try:
            wait_for("everything to be given back", lambda: self.resources() == before, timeout)
        except Timeout:
            self.assertEqual(self.resources(), before)

    def assertPath(self, node, path, reason="none", at_least=1):
        self.assertGreaterEqual(node.agent.totals().get((path, reason), 0), at_least, node.agent.totals())


class TwoPods(TwoNodes):
    """Two linked pods of a's agent, beside the two nodes."""

    def setUp(self):
        super().setUp()
        self.one, self.two = (self.lab.node(name) for name in ("one", "two"))
        self.lab.link(self.one, self.two)
        for number, pod in enumerate((self.one, self.two)):
            pod.apps = f"{self.a.cgroup}/pods/{number}"
            os.makedirs(pod.apps)

    def start(self, **more):
        self.a.start_agent(**more)
        for pod in (self.one, self.two):
            pod.popen(["sleep", "infinity"])
        wait_for("the pods' namespaces", lambda: self.a.agent.prepared() == 3)

    def translate(self):
        """An address that pod one translates to that of pod two, together with its own address."""
        rules = f"""
table ip t {{
  chain pre {{ type nat hook output priority -100; ip daddr 10.99.0.1 dnat to {self.two.ip4}; }};
  chain post {{ type nat hook postrouting priority 100; ip daddr {self.two.ip4} masquerade random; }};
}}"""
        self.one.run(["nft", rules], check=True)
        self.one.run(["ip", "route", "add", "10.99.0.0/24", "via", self.two.ip4], check=True)
        return "10.99.0.1"
