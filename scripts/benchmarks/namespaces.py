# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Paths between network namespaces of this machine. The baseline is the same program between two namespaces of its own
that no agent has ever seen, joined by a veth pair as the others are."""
import os
import subprocess

from lab.basics import Timeout, wait_for
from lab.nodes import Lab

from .cases import AT_REST, BASELINE, CASES, CROWD, OURS, PEER, Scene, measure_all, processor_seconds

CUBIC = ("--cc", "cubic")
# where the client runs and where the server
PROCESSORS = {"one core": ("0", "0"), "a core each": ("0", "1")}
PORTS = {"one core": 7000, "a core each": 7001}
DEFAULT = "the system's default"
DEFAULTS_PORTS = 10  # their offset from the ports of the other ways


def default_control():
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
        return file.read().strip()


class Pairs(Scene):
    """Two pairs of namespaces: ours and the baseline's. `arguments`, `baseline`: arguments of the programs in each."""

    arguments = baseline = CUBIC
    baseline_is = "TCP with cubic"
    beside = (DEFAULT,)
    wanted = ()  # counters that must have grown if the path was taken
    paths = set()  # the agent's connections take only these paths, and one of them at least

    def __init__(self, lab):
        self.client, self.server, self.c, self.d = (lab.node(name) for name in "abcd")
        lab.link(self.client, self.server)
        lab.link(self.c, self.d)
        self.agents = []  # and the processor of each end that it serves

    def prepare(self):
        self.start()
        self.ip, self.base_ip = self.server.ip4, self.d.ip4
        self.serve()

    def start(self):
        raise NotImplementedError

    def ways(self):
        """For each way: client's node, server's node, server's address, the programs' arguments, offset of ports."""
        return {
            OURS: (self.client, self.server, self.ip, self.arguments, 0),
            BASELINE: (self.c, self.d, self.base_ip, self.baseline, 0),
            DEFAULT: (self.c, self.d, self.base_ip, self.baseline[2:], DEFAULTS_PORTS),
        }

    def serve(self):
        for way in (OURS, BASELINE, *self.beside):
            _, server, _, arguments, far = self.ways()[way]
            for cores, (_, processor) in PROCESSORS.items():
                port = PORTS[cores] + far
                server.popen(["taskset", "-c", processor, PEER, *arguments, "serve", str(port), "1"])
                wait_for("the server", lambda: f":{port} " in server.run(["ss", "-Hltn"]).stdout)

    def pin(self, cores):
        for agent, end in self.agents:
            command = ["taskset", "-apc", PROCESSORS[cores][end], str(agent.pid)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def once(self, which, case, cores, seconds):
        client, _, ip, arguments, far = self.ways()[which]
        port = str(PORTS[cores] + far)
        command = ["taskset", "-c", PROCESSORS[cores][0], PEER, *arguments, case.what, ip, port]
        before = processor_seconds()
        done = client.run([*command, str(case.size), str(seconds)])
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return float(done.stdout), processor_seconds() - before

    def check(self):
        self.check_path(self.client)

    def check_path(self, client):
        """Raises an exception if connections of this client took another path than the scene's."""

        def paths():
            return {path for path, _ in client.agent.totals()} - {"bypass"}

        def taken():  # the agent may answer with counts that are a moment old
            decisions = client.agent.decisions()
            return (
                all(decisions[name] for name in self.wanted)
                and paths() <= self.paths
                and bool(paths()) == bool(self.paths)
            )

        try:
            wait_for("the counts of the path", taken, 10)
        except Timeout:
            raise RuntimeError(f"connections took another path: {paths()} {client.agent.decisions()}") from None


class Nobody(Pairs):
    """No agent at all: the difference between the two pairs themselves, which limits how exact all other rows are."""

    path, variant = "plain", "nobody"

    def start(self):
        pass

    def check(self):
        pass


class Hooks(Nobody):
    """The least that programs on a device cost: filters that let everything pass."""

    variant = "hooks"

    def start(self):
        self.client.run(["tc", "qdisc", "add", "dev", self.client.device, "clsact"], check=True)
        for way in ("ingress", "egress"):
            nothing = ["bpf", "bytecode", "1,6 0 0 0"]  # classic BPF: return 0, which is no match
            self.client.run(["tc", "filter", "add", "dev", self.client.device, way, *nothing], check=True)


class Asked(Pairs):
    path, variant, wanted = "plain", "asked", ("SMC_ANSWER_PLAIN",)

    def start(self):
        self.client.start_agent(log={"level": "warn"})
        self.agents = [(self.client.agent, 0)]


class Denied(Pairs):
    path, variant, wanted = "plain", "denied", ("SMC_OUT_DENIED",)

    def start(self):
        rules = [{"name": "none", "action": "deny"}, {"name": "all", "action": "allow"}]
        for end, node in enumerate((self.client, self.server)):
            node.start_agent(log={"level": "warn"}, policy={"rules": rules})
            self.agents.append((node.agent, end))


class Tuned(Pairs):
    path, variant, wanted = "tuned", "default", ("SMC_LOCAL_PAIR", "SMC_TUNED")
    arguments = baseline = beside = ()
    local = {"smcd": False}

    def __init__(self, lab):
        self.node = lab.node("n")
        super().__init__(lab)
        self.baseline_is = f"TCP with {default_control()}" if self.baseline == () else self.baseline_is

    def start(self):
        for number, pod in enumerate((self.client, self.server)):
            pod.apps = f"{self.node.cgroup}/pods/{number}"
            os.makedirs(pod.apps)
        self.node.start_agent(log={"level": "warn"}, local=self.local)
        for pod in (self.client, self.server):
            pod.popen(["sleep", "3600"])
        wait_for("the pods' namespaces", lambda: self.node.agent.prepared() == 3)
        self.client.agent = self.node.agent
        self.agents = [(self.node.agent, 0)]


class Bypass(Tuned):
    path, variant, wanted = "bypass", "force", ("SMC_BYPASS_WATCHED",)
    arguments = baseline = (*CUBIC, "--poll", "1")
    beside = (DEFAULT,)
    local = {"smcd": False, "bypass": "force"}


class OverLo(Pairs):
    path, variant, wanted = "tuned", "lo", ("SMC_TUNED",)
    arguments = baseline = beside = ()  # who has chosen a congestion control keeps it

    def __init__(self, lab):
        super().__init__(lab)
        self.baseline_is = f"TCP with {default_control()}"

    def prepare(self):
        self.client.start_agent(log={"level": "warn"})
        self.agents = [(self.client.agent, 0)]
        self.server, self.d = self.client, self.c
        self.ip = self.base_ip = "127.0.0.1"
        self.serve()


class SmcD(Pairs):
    path, variant, wanted, paths = "smcd", "local", ("SMC_LEG_JOINED",), {"smcd"}
    cases = [*CASES, *CROWD]
    arguments = ()

    def configuration(self):
        return {}

    def start(self):
        for end, node in enumerate((self.client, self.server)):
            node.start_agent(log={"level": "warn"}, **self.configuration())
            self.agents.append((node.agent, end))


class AtRest(SmcD):
    """Ten busy connections beside many at rest, and beside none: the baseline has agents of its own. "One core" only: a
    core each would be shared by four agents."""

    variant, baseline_is, cores = "at-rest", "SMC-D with none at rest", ("one core",)
    baseline = beside = ()
    cases = AT_REST

    def __init__(self, lab):
        super().__init__(lab)
        self.baseline_is = AtRest.baseline_is
        self.held = []  # processes that hold connections at rest

    def configuration(self):
        # the agent's own number of connections depends on how many descriptors the machine allows
        share = {"namespace_percent": 100, "cgroup_percent": 100}
        return {"limits": share, "ism": {"dmb_kib": 16}, "policy": {"short_lived": True}}

    def start(self):
        for end, node in enumerate((self.client, self.server, self.c, self.d)):
            node.start_agent(log={"level": "warn"}, **self.configuration())
            self.agents.append((node.agent, end % 2))

    def before(self, case):
        missing = case.at_rest - sum(count for _, count in self.held)
        if missing > 0:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            command = [PEER, "hold", self.ip, str(PORTS["one core"]), str(missing), "0"]
            process = self.client.popen(command, **pipes)
            if process.stdout.readline() != "held\n":
                raise RuntimeError(f"{missing} connections cannot be held")
            self.held.append((process, missing))

    def check(self):
        for client in (self.client, self.c):
            self.check_path(client)


class ShortLived(SmcD):
    """Agents that leave short-lived connections to TCP, as they do by default. They have to find out first, which is
    part of the first round. One agent may decline when the other one tries."""

    variant, wanted, paths = "short-lived", ("SMC_OUT_SHORT_LIVED",), {"smcd", "fallback"}
    cases = [case for case in CASES if case.what == "connect"]

    def configuration(self):
        return {"policy": {"short_lived": False}}


class IvshmemFile(SmcD):
    path, variant = "ivshmem", "file"

    def configuration(self):
        area = os.path.join(self.client.lab.run, "area")
        with open(area, "ab") as file:
            file.truncate(256 << 20)
        return {"ism": {"provider": "ivshmem", "device": area}}


SCENES = [Nobody, Hooks, Asked, Denied, Tuned, OverLo, Bypass, SmcD, ShortLived, AtRest, IvshmemFile]


def measure(kind, options):
    with Lab("bench") as lab:
        return measure_all(kind(lab), options)
