#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Memory and processor time of an agent with many namespaces, rules and connections, at rest and under churn.

    scripts/scale [--namespaces 500] [--rules 1000] [--connections 10000] [--json FILE] [--vm]

There are as many connections as the system's limit of descriptors allows; their number is printed. --vm: in a
virtual machine, which has limits of its own, and a processor that QEMU emulates. Not a test: nothing here passes or
fails.
"""
import json
import os
import shutil
import subprocess
import time

from lab.arguments import Arguments, set_up
from lab.basics import sh, wait_for
from lab.machines import VmLab
from lab.nodes import Lab

SERVER = """
import asyncio, sys, resource
resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
async def serve(reader, writer):
    while data := await reader.read(65536): writer.write(data)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], 5000, backlog=4096)
    print('ready', flush=True)
    async with server: await server.serve_forever()
asyncio.run(main())
"""

# Opens so many connections and keeps them; on "churn N" it opens and closes one after another for N seconds.
CLIENT = """
import socket, sys, time, resource
resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
kept = []
def one():
    c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1)
    return c
for i in range(int(sys.argv[2])): kept.append(one())
print(len(kept), flush=True)
for line in sys.stdin:
    end, made = time.monotonic() + float(line), 0
    while time.monotonic() < end: one().close(); made += 1
    print(made, flush=True)
"""


def rules(count):
    """Rules that match nothing here, and after them the one that matches: each SYN is compared with all."""
    others = [
        {"name": f"rule-{i}", "action": "deny", "remotes": [f"172.{16 + i // 4096}.{i // 16 % 256}.{i % 16 * 16}/28"]}
        for i in range(count - 1)
    ]
    return {"default": "deny", "rules": [*others, {"name": "all", "action": "allow", "remotes": ["10.0.0.0/8"]}]}


def usage(agent):
    with open(f"/proc/{agent.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{agent.pid}/smaps_rollup") as file:
        pss = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    ticks = os.sysconf("SC_CLK_TCK")
    return {"processor_s": (int(fields[11]) + int(fields[12])) / ticks, "pss_kib": pss, "at": time.monotonic()}


class Scale:
    def __init__(self, lab, options):
        self.lab, self.options, self.rows = lab, options, []
        self.a, self.b = lab.node("a"), lab.node("b")
        lab.link(self.a, self.b)
        self.spaces = []

    def measure(self, what, seconds=5):
        before = usage(self.a.agent)
        time.sleep(seconds)
        self.note(what, before)

    def note(self, what, before, **more):
        after = usage(self.a.agent)
        share = (after["processor_s"] - before["processor_s"]) / (after["at"] - before["at"])
        row = {"what": what, "pss_mib": round(after["pss_kib"] / 1024, 1), "processor_percent": round(100 * share, 1)}
        self.rows.append({**row, **more})
        print(f"{what:<52} {row['pss_mib']:>8} MiB {row['processor_percent']:>6} %  {more or ''}", flush=True)

    def start_agents(self, count):
        for node in (self.a, self.b):
            node.start_agent(
                policy=rules(count),
                log={"level": "info"},
                limits={"connections": max(10000, 2 * self.options.connections)},
                ism={"memory_mib": 65536},  # the limit of all DMBs; only bytes that are written take memory
            )

    def add_namespaces(self, count):
        began = time.monotonic()
        for i in range(count):
            name = f"{self.lab.tag}-s{i}"
            sh("ip", "netns", "add", name)
            self.spaces.append(name)
            cgroup = f"{self.a.cgroup}/pods/p{i}"
            os.makedirs(cgroup)
            enter = f"echo $$ > {cgroup}/cgroup.procs && exec ip netns exec {name} sleep 3600"
            self.lab.processes.append(subprocess.Popen(["sh", "-c", enter]))
        wait_for("all namespaces", lambda: self.a.agent.prepared() >= count, timeout=300)
        return time.monotonic() - began

    def add_clients(self, count):
        """Pods of a's node, and b's address for each: an agent takes at most a quarter of a namespace's ports."""
        clients = []
        while len(clients) * 7000 < count:
            pod = self.lab.node(f"c{len(clients)}")
            pod.apps = f"{self.a.cgroup}/clients/{pod.name}"
            os.makedirs(pod.apps)
            self.lab.link(pod, self.b)
            known = self.a.agent.prepared()
            pod.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"], check=True)
            clients.append((pod, self.b.ip4))
            pod.popen(["sleep", "36000"])
            wait_for("the pod's namespace", lambda: self.a.agent.prepared() > known)
        return clients

    def speak(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def run(self):
        options = self.options
        self.start_agents(1)
        self.measure("one namespace, one rule, at rest")
        for node in (self.a, self.b):
            node.agent.stop()
        self.start_agents(options.rules)
        self.measure(f"{options.rules} rules, at rest")
        took = self.add_namespaces(options.namespaces)
        self.measure(f"{options.namespaces} namespaces more, at rest")
        self.rows[-1]["prepared_s"] = round(took, 1)
        python = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        server = self.b.popen(["/usr/bin/python3", "-c", SERVER, "0.0.0.0"], stderr=subprocess.DEVNULL, **python)
        server.stdout.readline()
        limit = int(self.a.agent.status()["limits"]["connections"] * 0.7)
        count = min(options.connections, limit)
        clients = self.add_clients(count)
        before = usage(self.a.agent)
        made = 0
        for node, ip in clients:
            share = str(count // len(clients))
            client = node.popen(["/usr/bin/python3", "-c", CLIENT, ip, share], **python)
            made += int(client.stdout.readline())
        live = len(self.a.agent.connections())
        self.note(f"{made} connections were made", before, over_smc=live, limit=limit)
        self.measure(f"{live} connections over SMC-D, at rest")
        before = usage(self.a.agent)
        churned = self.speak(client, "5")
        self.note("churn beside them, 5 s", before, connections_a_second=round(churned / 5))


def in_a_machine(options):
    """Runs the same program in a virtual machine that allows as many descriptors as are needed."""
    words = ["--namespaces", options.namespaces, "--rules", options.rules, "--connections", options.connections]
    words += ["--json", "/job/scale.json"]
    command = f"ulimit -n 200000; exec /usr/bin/python3 -B {os.path.abspath(__file__)} {' '.join(map(str, words))}"
    with VmLab("scale", memory_mib=8192) as lab:
        machine = lab.machine("a", os.environ.get("SMC_VM_KERNEL", "7"))
        lab.boot()
        machine.modprobe("veth", "sch_ingress", "cls_bpf")
        print(machine.run(["sh", "-c", command], timeout=3600).stdout, end="")
        if options.json:
            shutil.copy(os.path.join(machine.job, "scale.json"), options.json)


def main():
    parser = Arguments("scripts/scale", __doc__, "0 if all was measured; 1 if something failed", setup=True)
    parser.add_argument("--vm", action="store_true", help="in a virtual machine")
    parser.add_argument("--namespaces", type=int, default=500, help="(500)")
    parser.add_argument("--rules", type=int, default=1000, help="1 to 1024 (1000)")
    parser.add_argument("--connections", type=int, default=10000, help="the most that are made (10000)")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    options = parser.parse_args()
    if not 1 <= options.rules <= 1024:
        parser.error("--rules: 1 to 1024")
    if options.set_up:
        set_up("--programs")
    if options.vm:
        return in_a_machine(options)
    with Lab("scale") as lab:
        scale = Scale(lab, options)
        try:
            scale.run()
        finally:
            for name in scale.spaces:
                subprocess.run(["ip", "netns", "del", name], check=False)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(scale.rows, file, indent=1)


main()
