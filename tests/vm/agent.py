# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An smc-agent in a virtual machine, and a kernel peer for it."""
import json
import os
import sys

from vm import wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "wire"))  # captures, tshark
BUILD = os.environ["SMC_BUILD"]
NETLINK = os.path.join(HERE, "smcnl.py")
TCP = ["python3", os.path.join(HERE, "peer.py")]  # an ordinary program
NATIVE = [*TCP, "--smc"]                          # the same over AF_SMC
PRELOAD = os.path.join(BUILD, "tests", "libsmc-test-preload.so")  # makes other programs the same
UEID = "SMC-AGENT.DEFAULT"


def kernel_peer(machine, ueid=UEID):
    """The machine's own net/smc, ready for SMC-Rv2.1."""
    machine.modprobe("smc", "smc_diag")
    machine.run(["python3", NETLINK, "ueid", ueid])


def kernel_counters(machine):
    return json.loads(machine.run(["python3", NETLINK, "stats"]).stdout)


def start_server(machine, argv, log):
    server = machine.start_program(argv, log)
    wait_for("the server to listen", lambda: "listening" in server.text())
    return server


class Agent:
    def __init__(self, machine, config=None, log="agent.log", command=None):
        """`command`: what runs the agent, with its arguments."""
        self.machine = machine
        self.config = {"log": {"level": "debug"}, "fallback": {"cache_s": 1}, **(config or {})}
        with open(os.path.join(machine.job, "agent.json"), "w") as file:
            json.dump(self.config, file)
        machine.modprobe("sch_ingress", "cls_bpf")
        self.process = machine.start_program([*(command or []), f"{BUILD}/smc-agent", "--config", "/job/agent.json"], log)
        wait_for("the agent to serve its namespace", lambda: (self.ctl("status") or {}).get("namespaces"))

    def ctl(self, *arguments):
        done = self.machine.run([f"{BUILD}/smcctl", *arguments, "--json"], check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def text(self, *arguments):
        return self.machine.run([f"{BUILD}/smcctl", *arguments]).stdout

    def connections(self, port=None):
        return [c for c in self.ctl("connections") or [] if port is None or c["server"].endswith(f":{port}")]

    def ended(self, port, count=1):
        """The connections to this port that ended, once there are `count`."""
        def found():
            ended = [c for c in self.ctl("connections", "--ended") or [] if c["server"].endswith(f":{port}")]
            return ended if len(ended) >= count else None
        return wait_for(f"{count} connections to port {port} to end", found)

    def log(self):
        return self.process.text()

    def stop(self):
        self.process.send_signal(15)
        return self.process.wait()
