# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Nodes on one machine: a network namespace, a cgroup and (if wanted) an smc-agent each.

    with Lab("name") as lab:
        a, b = lab.node("a"), lab.node("b")
        lab.link(a, b)
        a.start_agent(); b.start_agent()      # a.agent, b.agent
        server = b.popen(["redis-server", ...])

Everything is named after the lab and removed at the end, also after a failure; what an earlier, killed run of the same
name left is removed at the start. The nodes' cgroups are below one that the lab makes directly below the cgroup mount;
nothing is attached to the root cgroup. Traffic stays in the namespaces.
"""
import contextlib
import ctypes
import fcntl
import glob
import hashlib
import os
import shutil
import signal
import subprocess
import sys

from lab.agent import Agent
from lab.basics import Timeout, sh, wait_for

CLONE_NEWNET = 0x40000000
TERMINATED = 128 + signal.SIGTERM
_libc = ctypes.CDLL(None, use_errno=True)


def cgroup_mount():
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            if line.split()[2] == "cgroup2":
                return line.split()[1]
    raise RuntimeError("no cgroup v2 mount")


def enter_netns(name):
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if _libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(fd)


def sanitizer_reports(log):
    """Reports that an agent with a sanitizer has written, a few lines each; other agents write none."""
    lines = log.split("\n")
    marks = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer:", "runtime error:")
    return ["\n".join(lines[n : n + 40]) for n, line in enumerate(lines) if any(mark in line for mark in marks)]


class Process(subprocess.Popen):
    """A program whose output goes to a log."""

    def __init__(self, argv, log, enter):
        self.log = log
        with open(log, "a") as file:
            super().__init__(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, preexec_fn=enter)

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()


class Node:
    defaults = {}  # of an agent's configuration, unless a test sets something else

    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        self.netns = f"{lab.tag}-{name}"
        self.cgroup = f"{lab.cgroup}/{name}"
        self.apps = f"{self.cgroup}/apps"
        self.dir = f"{lab.run}/{name}"
        self.control = f"{lab.run}/{name}.sock"
        self.pins = f"/sys/fs/bpf/{lab.tag}-{name}"
        self.agent = None
        self.ip4 = self.ip6 = None
        os.makedirs(self.apps)
        os.makedirs(self.dir)
        sh("ip", "netns", "add", self.netns)
        sh("ip", "-n", self.netns, "link", "set", "lo", "up")

    # --- processes -----------------------------------------------------------------------------------
    def popen(self, command, cgroup=None, **kwargs):
        """Starts a program of this node, in its namespace and its cgroup for applications."""
        procs = f"{cgroup or self.apps}/cgroup.procs"

        def enter():
            enter_netns(self.netns)  # first, or the agent would see the host's namespace in its cgroup
            with open(procs, "w") as file:
                file.write(str(os.getpid()))

        kwargs.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(word) for word in command], preexec_fn=enter, **kwargs)
        self.lab.processes.append(process)
        return process

    def run(self, command, timeout=60, check=False, **kwargs):
        process = self.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise Timeout(f"{command[0]} took over {timeout} s; it said: {out[-500:]} {err[-500:]}")
        if check and process.returncode != 0:
            raise RuntimeError(f"{command}: {process.returncode}: {out[-1000:]}{err[-1000:]}")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def python(self, script, *arguments, **kwargs):
        return self.run(["/usr/bin/python3", "-c", script, *arguments], **kwargs)

    def start(self, argv, log):
        """Starts a program that is no application: in the node's namespace, but in no cgroup that an agent serves."""
        process = Process(argv, os.path.join(self.dir, log), lambda: enter_netns(self.netns))
        self.lab.processes.append(process)
        return process

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    # --- agent ---------------------------------------------------------------------------------------
    def config(self, **overrides):
        config = {
            "node": {"host_name": self.netns[-32:]},
            "cgroup": {"root": self.cgroup},
            "bpf": {"pin_path": self.pins},
            "control": {"socket": self.control},
            "ism": {"directory": f"{self.lab.run}/ism"},
            "local": {"smcd": True},
            "policy": {"short_lived": True},
            "log": {"level": "debug"},
        }
        for more in (self.defaults, overrides):
            for section, values in more.items():
                config.setdefault(section, {}).update(values)
        return config

    def start_agent(self, command=(), **overrides):
        """`command`: runs the agent, with its arguments."""
        self.agent = Agent(self, self.config(**overrides), command=command)
        # A process in the cgroup makes the agent serve the namespace before the first connection.
        self.popen(["sleep", "3600"])
        return self.agent.wait_serving()

    def agent_log(self):
        """The logs of all agents that this node has had."""
        path = os.path.join(self.dir, "agent.log")
        if not os.path.exists(path):
            return ""
        with open(path, errors="replace") as file:
            return file.read()


def mount_bpf_file_system():
    """Mounts a bpf file system if there is none. Agents that start at the same time would mount two."""
    where = os.open("/sys/fs/bpf", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(where, fcntl.LOCK_EX)
        with open("/proc/self/mounts") as mounts:
            if not any(line.split()[1:3] == ["/sys/fs/bpf", "bpf"] for line in mounts):
                sh("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
    finally:
        os.close(where)


class Lab:
    series = ""  # keeps apart labs of the same name, if they are of different series of tests
    terminated = closing = False

    def __init__(self, name):
        if Lab.terminated:  # unittest takes a SystemExit for an error of one test, and would go on with the next
            sys.exit(TERMINATED)
        self.tag = "smc-" + hashlib.sha256((self.series + name).encode()).hexdigest()[:6]
        self.cgroup = f"{cgroup_mount()}/{self.tag}"
        self.run = f"/run/{self.tag}"
        self.nodes, self.processes = {}, []
        self.links = 0
        signal.signal(signal.SIGTERM, self._terminate)  # so that a terminated test cleans up too
        mount_bpf_file_system()
        self._clean()
        os.makedirs(self.run)
        os.makedirs(self.cgroup)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is not None:
            for node in self.nodes.values():
                text = node.agent_log()
                if text:
                    print(f"--- log of agent {node.name}\n{text[-6000:]}", file=sys.stderr)
        self.close()

    def node(self, name):
        node = Node(self, name)
        self.nodes[name] = node
        return node

    def link(self, a, b):
        """Joins two nodes by a veth pair: 10.77.N.1 and .2, fd77:N+1::1 and ::2."""
        n = self.links
        self.links += 1
        ends = [f"v{n}{a.name}", f"v{n}{b.name}"]
        sh("ip", "-n", a.netns, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", b.netns)
        for host, (node, device) in enumerate(zip((a, b), ends), start=1):
            node.ip4, node.ip6, node.device = f"10.77.{n}.{host}", f"fd77:{n + 1}::{host}", device
            sh("ip", "-n", node.netns, "addr", "add", f"{node.ip4}/24", "dev", device)
            sh("ip", "-n", node.netns, "addr", "add", f"{node.ip6}/64", "dev", device, "nodad")
            sh("ip", "-n", node.netns, "link", "set", device, "up")

    @staticmethod
    def _terminate(*_):
        Lab.terminated = True
        if not Lab.closing:
            sys.exit(TERMINATED)

    def close(self):
        Lab.closing, before = True, Lab.terminated
        try:
            self._close()
        finally:
            Lab.closing = False
        if Lab.terminated and not before:
            sys.exit(TERMINATED)

    def _close(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reports = [line for node in self.nodes.values() for line in sanitizer_reports(node.agent_log())]
        self._clean()
        if reports:
            raise RuntimeError("a sanitizer found: " + "\n".join(reports))

    def _clean(self):
        for directory, _, _ in os.walk(self.cgroup, topdown=False):
            self._kill_cgroup(directory)
            self._remove_cgroup(directory)
        for path in glob.glob(f"/run/netns/{self.tag}-*"):
            name = os.path.basename(path)
            for pid in sh("ip", "netns", "pids", name, check=False).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)  # an agent, for example, that is in no cgroup of the laboratory
            sh("ip", "netns", "delete", name, check=False)
        for path in glob.glob(f"/sys/fs/bpf/{self.tag}-*"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.run, ignore_errors=True)

    @staticmethod
    def _remove_cgroup(directory):
        def removed():
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                pass
            except OSError:  # killed processes are not all gone yet
                return False
            return True

        try:
            wait_for("a cgroup to go", removed, 2)
        except Timeout:
            pass

    @staticmethod
    def _kill_cgroup(directory):
        def pids():
            try:
                with open(f"{directory}/cgroup.procs") as file:
                    return [int(line) for line in file if int(line) != os.getpid()]
            except OSError:
                return []

        for pid in pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            wait_for("killed processes to go", lambda: not pids(), 5)
        except Timeout:
            pass
