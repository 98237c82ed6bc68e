# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Two linked nodes, and the means by which other programs of a node reach its sockets and packets."""
import os

import fidelity
from lab.basics import sh, wait_for

HEAD = """
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
"""
TIME_ENOUGH = {
    "smc": {"step_timeout_ms": 2000},
    "fallback": {"budget_ms": 10000, "cache_s": 1},
    "times": {"stale_ms": 10000, "standstill_ms": 10000},
}


class Scene:
    """Two nodes, `client` and `server`, which have an agent each when `start()` was called: `hosts` have agents.
    `everybody` is a cgroup above all applications and agents, as the root is on a node. The agent of a host is in
    `agents_cgroup(host)`."""

    def __init__(self, lab):
        self.lab = lab
        self.client, self.server = lab.node("a"), lab.node("b")
        self.nodes = self.hosts = (self.client, self.server)
        lab.link(*self.nodes)
        fidelity.dead_ends(self.client)
        self.everybody = lab.cgroup
        self.loaded = {}
        self.helpers = []  # processes of a neighbour

    def start(self, **config):
        for host in self.hosts:
            cgroup = self.agents_cgroup(host)
            join = ["/bin/sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh"]
            host.start_agent(command=join, **TIME_ENOUGH, **config)
            with open(f"{cgroup}/cgroup.procs") as file:
                assert str(host.agent.pid) in file.read().split(), "the agent is in another cgroup"

    def agents_cgroup(self, host):
        path = f"{host.cgroup}/smc-agent"
        os.makedirs(path, exist_ok=True)
        return path

    def stop(self):
        for host in self.hosts:
            host.agent.stop()

    def load(self, text):
        """Compiles and loads programs with their maps, once; returns the directory in which they are pinned."""
        if text not in self.loaded:
            source = self.client.write(f"foreign{len(self.loaded)}.c", HEAD + text)
            program = source[:-1] + "o"
            headers = f"-I/usr/include/{os.uname().machine}-linux-gnu"
            sh("clang-14", "-O2", "-g", "-target", "bpf", headers, "-c", source, "-o", program)
            self.loaded[text] = program, f"/sys/fs/bpf/{self.lab.tag}-foreign{len(self.loaded)}"
        program, pins = self.loaded[text]
        if not os.path.exists(pins):
            sh("bpftool", "prog", "loadall", program, pins, "pinmaps", pins)
        return pins

    def unload(self, text):
        """Gives up the last reference to its maps, so that sockets leave them."""
        sh("rm", "-r", self.loaded[text][1])

    def attach(self, kind, pinned, cgroup=None):
        """A program of a cgroup, of bpftool's kind. The kernel runs those of lower cgroups first, so the agent's run in
        front of those of `everybody`."""
        sh("bpftool", "cgroup", "attach", cgroup or self.everybody, kind, "pinned", pinned, "multi")

    def detach(self, kind, pinned, cgroup=None):
        sh("bpftool", "cgroup", "detach", cgroup or self.everybody, kind, "pinned", pinned)

    def tc(self, node, *words, check=True):
        """`tc` with "DEV" for the node's device."""
        node.run(["tc", *(node.device if word == "DEV" else word for word in words)], check=check)

    def both(self, function):
        for node in self.nodes:
            function(node)


class Pods(Scene):
    """The same with two pods of one node, whose connections may be bypassed."""

    def __init__(self, lab):
        super().__init__(lab)
        host = lab.node("n")
        self.hosts = (host,)
        for number, pod in enumerate(self.nodes):
            pod.apps = f"{host.cgroup}/pods/{number}"
            os.makedirs(pod.apps)

    def start(self, **config):
        super().start(local={"bypass": "force"}, **config)
        for pod in self.nodes:
            pod.popen(["sleep", "infinity"])
        wait_for("the pods' namespaces", lambda: self.hosts[0].agent.prepared() == 3)
