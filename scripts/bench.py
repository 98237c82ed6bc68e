# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Ratios against plain TCP, measured alternately in one run: median, and lowest to highest.

A ratio above 1 means better than TCP, whatever the unit. The baseline is the same program between two namespaces of
its own that no agent has ever seen, joined by a veth pair as the others are. Numbers are of the machine at hand; only
the ratios are worth comparing. CPU is what the whole machine used, for a round trip, a MB or a connection.

"one core" puts everything on one processor, agents included; "a core each" puts the client's end on one and the
server's on another.

  plain   connections that are not accelerated, both ends with cubic. nobody: there is no agent, so this is what the
          machine makes of nothing. hooks: no agent either, but filters on the client's device that do nothing, where
          the agent's programs are: what cannot be had for less. asked: the server's node has no agent, so every
          connection asks. denied: the policy leaves them alone.
  tuned   within one node. default: two pods of one agent, and the system's default (bbr, if it is that) at both.
          lo: over 127.0.0.1, cubic at both, local.queue_kib 16.
  bypass  within one node: two pods of one agent, cubic at both, and local.bypass "force". Both sides use poll(), and
          each connection but those of "connections" is used for a second before it is measured.
  smcd    SMC-D between two agents; the baseline has cubic. local: the fabric of one kernel. ivshmem: that of virtual
          machines, over a file instead of a BAR.

--plot FILE draws the ratios (python3-matplotlib). --codec measures the wire library instead: nanoseconds and
allocations per message.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from lab.basics import test_program, wait_for
from lab.nodes import Lab

PEER = test_program("smc-bench-peer")
CODEC = test_program("smc-bench-codec")
# name, peer's arguments, unit, higher is better
CASES = [
    ("64 B round trip", ("roundtrip", 64), "us", False),
    ("4 KiB round trip", ("roundtrip", 4096), "us", False),
    ("64 KiB stream", ("stream", 65536), "GB/s", True),
    ("256 KiB stream", ("stream", 262144), "GB/s", True),
    ("64 B beside four streams", ("crowded", 64), "us", False),
    ("connections", ("connect", 1), "1/s", True),
]
# where the client runs and where the server; its port
CORES = {"one core": ("0", "0", 7000), "a core each": ("0", "1", 7001)}
CUBIC = ("--cc", "cubic")


class Scene:
    """Two pairs of namespaces: ours and the baseline. `cc` and `baseline_cc` are arguments of the programs."""

    cc = baseline_cc = CUBIC
    wanted = ()  # counters that show the path
    paths = set()  # of the agent's connections

    def __init__(self, lab):
        self.client, self.server, self.c, self.d = (lab.node(name) for name in "abcd")
        lab.link(self.client, self.server)
        lab.link(self.c, self.d)
        self.agents = []  # and the processor of each end that it serves

    def prepare(self):
        self.start()
        self.ip = self.server.ip4
        self.base_ip = self.d.ip4

    def start(self):
        raise NotImplementedError

    def serve(self):
        for server, cc in ((self.server, self.cc), (self.d, self.baseline_cc)):
            for _, processor, port in CORES.values():
                server.popen(["taskset", "-c", processor, PEER, *cc, "serve", str(port), "1"])
                wait_for("the server", lambda n=server, p=port: f":{p} " in n.run(["ss", "-Hltn"]).stdout)

    def pin(self, cores):
        for agent, end in self.agents:
            command = ["taskset", "-apc", CORES[cores][end], str(agent.pid)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def once(self, arguments, cores, seconds, ours):
        """What the program says, and the CPU time that the machine used a second."""
        client, ip, cc = (self.client, self.ip, self.cc) if ours else (self.c, self.base_ip, self.baseline_cc)
        processor, _, port = CORES[cores]
        what, size = arguments
        command = ["taskset", "-c", processor, PEER, *cc, what, ip, str(port), str(size), str(seconds)]
        before = busy()
        done = client.run(command)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return float(done.stdout), (busy() - before) / seconds

    def check(self):
        decisions = self.client.agent.decisions()
        paths = {path for path, _ in self.client.agent.totals()}
        if not all(decisions[name] for name in self.wanted) or paths != self.paths:
            raise RuntimeError(f"connections took another path: {paths} {decisions}")


class Nobody(Scene):
    """No agent at all: what the two pairs differ by themselves, which no other row can be more exact than."""

    path, variant = "plain", "nobody"

    def start(self):
        pass

    def check(self):
        pass


class Hooks(Nobody):
    """The least that somebody on a device costs: filters that let everything pass."""

    variant = "hooks"

    def start(self):
        self.client.run(["tc", "qdisc", "add", "dev", self.client.device, "clsact"], check=True)
        for way in ("ingress", "egress"):
            nothing = ["bpf", "bytecode", "1,6 0 0 0"]  # classic BPF: return 0, which is no match
            self.client.run(["tc", "filter", "add", "dev", self.client.device, way, *nothing], check=True)


class Asked(Scene):
    path, variant, wanted = "plain", "asked", ("SMC_ANSWER_PLAIN",)

    def start(self):
        self.client.start_agent(log={"level": "warn"})
        self.agents = [(self.client.agent, 0)]


class Denied(Scene):
    path, variant, wanted = "plain", "denied", ("SMC_OUT_DENIED",)

    def start(self):
        rules = [{"name": "none", "action": "deny"}, {"name": "all", "action": "allow"}]
        for end, node in enumerate((self.client, self.server)):
            node.start_agent(log={"level": "warn"}, policy={"rules": rules})
            self.agents.append((node.agent, end))


class Tuned(Scene):
    path, variant, wanted = "tuned", "default", ("SMC_LOCAL_PAIR", "SMC_TUNED")
    cc = baseline_cc = ()
    local = {"smcd": False}

    def __init__(self, lab):
        self.node = lab.node("n")
        super().__init__(lab)

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
    cc = baseline_cc = (*CUBIC, "--poll", "1")
    local = {"smcd": False, "bypass": "force"}


class OverLo(Scene):
    path, variant, wanted = "tuned", "lo", ("SMC_TUNED",)

    def prepare(self):
        self.client.start_agent(log={"level": "warn"}, local={"queue_kib": 16})
        self.agents = [(self.client.agent, 0)]
        self.server, self.d = self.client, self.c
        self.ip = self.base_ip = "127.0.0.1"


class SmcD(Scene):
    path, variant, wanted, paths = "smcd", "local", ("SMC_LEG_PAIRED",), {"smcd"}
    cc = ()

    def start(self):
        for end, node in enumerate((self.client, self.server)):
            node.start_agent(log={"level": "warn"})
            self.agents.append((node.agent, end))


class Ivshmem(SmcD):
    variant = "ivshmem"

    def start(self):
        area = os.path.join(self.client.lab.run, "area")
        with open(area, "wb") as file:
            file.truncate(256 << 20)
        for end, node in enumerate((self.client, self.server)):
            node.start_agent(log={"level": "warn"}, ism={"provider": "ivshmem", "device": area})
            self.agents.append((node.agent, end))


SCENES = [Nobody, Hooks, Asked, Denied, Tuned, OverLo, Bypass, SmcD, Ivshmem]


def busy():
    """Seconds that the processors were busy since the machine's start."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cpu_us(arguments, value, used):
    """Microseconds of CPU for a round trip, a MB or a connection."""
    count = {"roundtrip": 1e6 / value, "stream": value * 1e3, "connect": value}.get(arguments[0])
    return used * 1e6 / count if count else None


def middle(values):
    return None if None in values else round(statistics.median(values), 2)


def measure_case(scene, case, cores, options):
    name, arguments, unit, higher = case
    pairs, cpu = [], []
    for number in range(options.rounds):
        order = (True, False) if number % 2 else (False, True)
        found = {ours: scene.once(arguments, cores, options.seconds, ours) for ours in order}
        pairs.append((found[True][0], found[False][0]))
        cpu.append([cpu_us(arguments, *found[ours]) for ours in (True, False)])
    ratios = sorted(o / b if higher else b / o for o, b in pairs)
    ours, base = (statistics.median(side) for side in zip(*pairs))
    result = {
        "path": scene.path,
        "variant": scene.variant,
        "case": f"{name}, {cores}",
        "unit": unit,
        "ours": round(ours, 3),
        "baseline": round(base, 3),
        "congestion_control": scene.baseline_cc[1] if scene.baseline_cc else default_control(),
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(ratios[0], 3),
        "highest": round(ratios[-1], 3),
        "cpu_us": middle([o for o, _ in cpu]),
        "baseline_cpu_us": middle([b for _, b in cpu]),
    }
    spent = f"{result['cpu_us']:>8} {result['baseline_cpu_us']:>8}" if result["cpu_us"] else f"{'-':>8} {'-':>8}"
    print(
        f"{scene.path:6}{scene.variant:8} {result['case']:38}{ours:>11,.2f} {base:>11,.2f} {unit:5}"
        f"{result['ratio']:>6.2f}x ({result['lowest']:.2f} to {result['highest']:.2f}) {spent}",
        flush=True,
    )
    return result


def default_control():
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
        return file.read().strip()


def measure(kind, options):
    results = []
    with Lab("bench") as lab:
        scene = kind(lab)
        scene.prepare()
        scene.serve()
        for cores in CORES:
            scene.pin(cores)
            for case in CASES:
                if options.case in f"{case[0]}, {cores}":
                    results.append(measure_case(scene, case, cores, options))
        scene.check()
    return results


def measure_paths(options):
    kinds = [kind for kind in SCENES if options.path in (None, kind.path, f"{kind.path}-{kind.variant}")]
    print(
        f"{'path':14} {'case':38}{'ours':>11} {'plain TCP':>11} {'unit':5}{'ratio':>7} "
        f"(lowest to highest of {options.rounds}) CPU us, and TCP's"
    )
    return [result for kind in kinds for result in measure(kind, options)]


def measure_codec():
    results = []
    print(f"{'case':25} {'ns':>8} {'allocations':>12}")
    for line in subprocess.run([CODEC], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        case, nanoseconds, allocations = line.split("\t")
        results.append(
            {"path": "codec", "case": case, "unit": "ns", "ours": float(nanoseconds), "allocations": int(allocations)}
        )
        print(f"{case:25} {nanoseconds:>8} {allocations:>12}")
    return results


def plot(results, path):
    """Each ratio with its range, a colour a path; 1 is plain TCP."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "smc-agent"})
    from matplotlib import pyplot

    names = [f"{r['path']} ({r['variant']}): {r['case']}" for r in results]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(r["path"] for r in results))}
    figure, axes = pyplot.subplots(figsize=(10, 0.28 * len(results) + 1))
    rows = range(len(results))
    axes.hlines(rows, [r["lowest"] for r in results], [r["highest"] for r in results], color="lightgrey", linewidth=5)
    axes.scatter([r["ratio"] for r in results], rows, c=[colours[r["path"]] for r in results], zorder=2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(list(rows), names)
    axes.invert_yaxis()
    axes.set_xlabel("times plain TCP (median and range; more is better)")
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    paths = sorted({kind.path for kind in SCENES} | {f"{kind.path}-{kind.variant}" for kind in SCENES})
    parser.add_argument("--path", choices=paths, help="only this one")
    parser.add_argument("--case", default="", help='only those whose name has this in it, as in "round trip, one core"')
    parser.add_argument("--codec", action="store_true", help="the wire library, no network")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--plot", metavar="FILE", help="also draw them there, as an SVG")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of measurements (default 15)")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of each (default 0.3)")
    options = parser.parse_args()
    results = measure_codec() if options.codec else measure_paths(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"results": results}, file, indent=2)
    if options.plot and not options.codec:
        plot(results, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
