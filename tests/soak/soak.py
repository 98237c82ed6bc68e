# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A long run: mixed load between two nodes whose agents are killed, stopped, filled and cut off. Is every byte right,
and is nothing used up?

    SMC_SOAK_SECONDS   of load, 3600 if not said; measuring comes on top
    SMC_SOAK_SEED      what the driver does, and when, follows from it

The run has stages (STAGES). After each the load rests until no connection is left, and both agents are measured. An
agent's figures are compared with those that it had after an earlier stage, if it is still the same process.
"""
import collections
import glob
import json
import os
import random
import signal
import sys
import time

from lab.agent import Agent
from lab.basics import map_entries, sh, wait_for
from lab.nodes import Lab
from load import KINDS, TIMEOUT, STUCK

LOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "load.py")

# For each stage: share of the run; nodes whose agents are killed and terminated; whether the limits are small.
Stage = collections.namedtuple("Stage", "name share victims small", defaults=("", False))
STAGES = (
    Stage("calm", 0.10),
    Stage("agent b dies", 0.15, "b"),
    Stage("small limits", 0.05, "b", small=True),
    Stage("calm", 0.05),
    Stage("agent a dies", 0.15, "a"),
    Stage("small limits", 0.05, "a", small=True),
    Stage("either dies", 0.10, "ab"),
    Stage("calm", 0.10),
    Stage("calm", 0.25),
)
SMALL = {"limits": {"connections": 8}, "ism": {"memory_mib": 12}, "fallback": {"cache_entries": 16, "cache_s": 1}}
USUAL = {"fallback": {"cache_s": 1}}

# The errors that each disturbance explains, and for how long after it. A device that is down explains two more, as with
# plain TCP. A lost reset is not repeated, so its reader hears nothing, or of ABORTED if it was the reset of a leg. A
# listener that cannot repeat its SYN-ACK forgets the connection, which its client has, and resets it when that writes.
BROKEN = ("ECONNRESET", "EPIPE")
EXPLAINS = {"kill": BROKEN, "term": BROKEN, "stop": BROKEN, "link": ("ENETUNREACH", "EHOSTUNREACH", "ENETDOWN")}
GRACE = {"kill": 1.0, "term": 1.0, "stop": 1.0, "link": 5.0}  # link: until neighbours are found again
ABORTED, ABORTED_GRACE = "ECONNABORTED", 10.0

# Figures that may have grown by so much. All other counts must be back at zero.
MARGINS = {"rss_kib": 4096, "descriptors": 4, "threads": 0, "smc_servers": 8}
TABLES = ("smc_requests", "smc_hairpins", "smc_inbound", "smc_servers")
NONE_LEFT = ("connections", "sockets", "dmbs", "dmb_bytes", "smc_hairpins")
# An entry of a request without an answer stays for 130 s, one of a SYN that came again for 70 s.
NONE_LEFT_AT_LAST = ("smc_requests", "smc_inbound")
CONNECTIONS_END = 2 * TIMEOUT
TABLES_EMPTY = 15.0
TABLES_EMPTY_AT_LAST = 140.0

# A run that did not load the agents proves nothing. At least this share of connections must go over SMC-D; the others
# come while an agent is down, full, or has just failed.
SMCD_SHARE = 0.2
REACHED = ("SMC_OUT_NETNS_FULL", "SMC_IN_NETNS_FULL", "SMC_OUT_CGROUP_FULL", "SMC_IN_CGROUP_FULL")


def plan(seconds, seed):
    """The steps of the driver for each stage: (seconds after the last step, action, node, duration)."""
    rnd = random.Random(seed)
    pace = min(15.0, seconds / 40)
    steps = []
    for stage in STAGES:
        actions = ["stop", "link"] + ["kill", "term"] * bool(stage.victims) * 2
        left, found = stage.share * seconds, []
        while (pause := pace * rnd.uniform(0.3, 1.7)) < left:
            left -= pause
            action = rnd.choice(actions)
            node = rnd.choice(stage.victims if action in ("kill", "term") else "ab")
            length = {"stop": rnd.uniform(0.1, 3), "link": 1.0}.get(action, rnd.choice((0, rnd.uniform(0, 2))))
            left -= length
            found.append((pause, action, node, length))
        steps.append((found, max(0.0, left)))
    return steps


class Soak:
    def __init__(self, lab, seconds, seed):
        self.lab, self.seconds, self.seed = lab, seconds, seed
        self.began = time.monotonic()
        self.nodes = [lab.node("a"), lab.node("b")]
        self.disturbances = []  # (from, to, action)
        self.done = collections.Counter()  # actions
        self.paths = collections.Counter()
        self.decisions = collections.Counter()
        self.before = {}  # node -> (stage, figures) of an agent that has settled
        self.born = {}  # node -> when its agent was started
        self.rows = []  # rows of the table of figures
        self.small = False  # whether the limits of agents are small
        self.failures = []
        self.load = []

    def fail(self, what):
        self.failures.append(what)
        print(f"WRONG at {time.monotonic() - self.began:.1f} s: {what}", flush=True)

    # --- the laboratory ---------------------------------------------------------------------------------
    def start(self):
        a, b = self.nodes
        self.lab.link(a, b)
        for node in self.nodes:
            for setting in (
                "net.ipv4.ip_local_port_range=10000 65535",
                f"net.ipv6.conf.{node.device}.keep_addr_on_down=1",
            ):
                sh("ip", "netns", "exec", node.netns, "sysctl", "-qw", setting)
            self.program(node, "serve")
        wait_for("the servers", lambda: all('"ready"' in process.text() for _, process in self.load))
        for node in self.nodes:
            self.start_agent(node)
        for node, other in ((a, b), (b, a)):
            for kind in KINDS:
                self.program(node, kind, f"{self.seed}.{node.name}", self.lab.run, other.ip4, other.ip6)

    def program(self, node, *arguments):
        log = open(f"{node.dir}/{arguments[0]}.out", "w")
        process = node.popen(["/usr/bin/python3", "-B", LOAD, *arguments], stdout=log, stderr=log)
        log.close()
        process.text = lambda: open(log.name).read()
        self.load.append((node.name + " " + arguments[0], process))

    def start_agent(self, node):
        config = node.config(**{**(SMALL if self.small else USUAL), "log": {"level": "info"}})
        node.agent = Agent(node, config)
        node.agent.wait_serving()
        self.born[node] = time.monotonic()

    def count_paths(self, node):
        for (path, reason), count in node.agent.totals().items():
            self.paths[path if reason == "none" else f"{path} {reason}"] += count
        self.decisions.update(node.agent.decisions())

    # --- the driver -------------------------------------------------------------------------------------
    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while True:
            for node in self.nodes:
                if node.agent.process.poll() is not None:
                    raise RuntimeError(f"agent {node.name} ended with {node.agent.process.returncode}")
            for name, process in self.load:
                if process.poll() is not None:
                    raise RuntimeError(f"load {name} ended with {process.returncode}: {process.text()[-2000:]}")
            if time.monotonic() >= end:
                return
            time.sleep(min(0.2, max(0.0, end - time.monotonic())))

    def restart(self, node, how, length=0.0):
        self.count_paths(node)
        node.agent.stop(how)
        time.sleep(length)
        self.start_agent(node)
        self.before.pop(node, None)

    def disturb(self, action, node, length):
        began = time.monotonic()
        if action == "stop":
            node.agent.send_signal(signal.SIGSTOP)
            time.sleep(length)
            node.agent.send_signal(signal.SIGCONT)
        elif action == "link":
            sh("ip", "-n", node.netns, "link", "set", node.device, "down")
            time.sleep(length)
            sh("ip", "-n", node.netns, "link", "set", node.device, "up")
        else:
            self.restart(node, signal.SIGKILL if action == "kill" else signal.SIGTERM, length)
        self.disturbances.append((began, time.monotonic(), action))
        self.done[action] += 1

    def restart_both(self):
        began = time.monotonic()
        for node in self.nodes:
            self.restart(node, signal.SIGTERM)
        self.disturbances.append((began, time.monotonic(), "term"))
        self.done["term"] += 2

    def run(self):
        for number, (stage, (steps, rest)) in enumerate(zip(STAGES, plan(self.seconds, self.seed))):
            if stage.small != self.small:
                self.small = stage.small
                self.restart_both()
            for pause, action, name, length in steps:
                self.sleep(pause)
                self.disturb(action, self.lab.nodes[name], length)
            self.sleep(rest)
            last = number == len(STAGES) - 1
            open(f"{self.lab.run}/{'stop' if last else 'pause'}", "w").close()
            self.measure(f"{number + 1} {stage.name}", stage.share * self.seconds, last)
            if not last:
                os.unlink(f"{self.lab.run}/pause")
        for node in self.nodes:
            self.count_paths(node)

    @staticmethod
    def within(seconds, pause, condition):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(pause)
        return True

    # --- figures ----------------------------------------------------------------------------------------
    def sockets(self, node):
        command = ["ss", "-Htn", "state", "connected", "exclude", "time-wait"]
        return sh("ip", "netns", "exec", node.netns, *command).splitlines()

    def figures(self, node):
        pid, status = node.agent.pid, node.agent.status()
        with open(f"/proc/{pid}/status") as lines:
            own = dict(line.split(":", 1) for line in lines)
        found = {
            "rss_kib": int(own["VmRSS"].split()[0]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(own["Threads"]),
            "connections": len(node.agent.connections()),
            "sockets": len(self.sockets(node)),
            "dmbs": status["ism"]["dmbs"],
            "dmb_bytes": status["ism"]["taken_bytes"],
        }
        return {**found, **{name: len(self.table(node, name)) for name in TABLES}}

    def table(self, node, name):
        return map_entries(f"{node.pins}/{name}")

    def rested(self):
        """True if no agent has connections or their sockets, or keeps DMBs for later connections."""

        def busy(node):
            return node.agent.connections() or self.sockets(node) or node.agent.status()["ism"]["pooled"]

        return not any(busy(node) for node in self.nodes)

    def measure(self, name, length, last):
        """Measures after a stage what is left when nothing runs any more."""
        began = time.monotonic()
        if not self.within(CONNECTIONS_END, 0.3, self.rested):
            for node in self.nodes:
                self.fail(
                    f"{name}: connections of agent {node.name} that do not end: "
                    f"{json.dumps(node.agent.connections())[:3000]}, sockets {self.sockets(node)[:20]}"
                )
        figures, empty = {}, NONE_LEFT + NONE_LEFT_AT_LAST * last

        def nothing_left():
            for node in self.nodes:
                figures[node] = self.figures(node)
            return not any(figures[node][key] for node in self.nodes for key in empty)

        if not self.within(TABLES_EMPTY_AT_LAST if last else TABLES_EMPTY, 2, nothing_left):
            for node in self.nodes:
                left = {key: figures[node][key] for key in empty if figures[node][key]}
                if left:
                    tables = {key: self.table(node, key)[:3] for key in left if key in TABLES}
                    self.fail(f"{name}: left at {node.name}: {left} {json.dumps(tables)[:3000]}")
        for node in self.nodes:
            self.compare(node, name, figures[node], settled=began - self.born[node] >= length / 2)
        print(
            f"{time.monotonic() - self.began:7.1f} s: stage {name} done, rested for {time.monotonic() - began:.1f} s",
            flush=True,
        )

    def compare(self, node, name, now, settled):
        before_name, before = self.before.get(node, (None, None))
        self.rows.append((name, node.name, node.agent.pid, now, before_name))
        if before:
            for key, margin in MARGINS.items():
                if now[key] > before[key] + margin:
                    self.fail(f"{name}: {key} of agent {node.name} was {before[key]} after {before_name}: {now[key]}")
        elif settled:
            self.before[node] = (name, now)

    # --- errors -----------------------------------------------------------------------------------------
    def excuse(self, error):
        """The disturbance that explains an error, or nothing."""
        what = error["what"].removeprefix("connect: ")
        for began, ended, action in self.disturbances:
            late = error["at"] > ended + GRACE[action]
            if what == STUCK:
                explained = action == "link" and began <= error["at"] and ended >= error["began"]
            elif what == ABORTED:
                explained = action == "link" and began <= error["at"] <= ended + ABORTED_GRACE
            elif what in BROKEN and action == "link":
                explained = began - 0.2 <= error["began"] <= ended and not late
            else:
                explained = what in EXPLAINS[action] and began - 0.1 <= error["at"] and not late
            if explained:
                return action
        return None

    def judge(self):
        """Reads the load's output: its totals, and errors by kind."""
        totals, errors, longest = {}, collections.Counter(), 0.0
        for name, process in self.load:
            if not name.endswith("serve"):
                try:
                    if process.wait(CONNECTIONS_END) != 0:
                        self.fail(f"load {name} ended with {process.returncode}: {process.text()[-2000:]}")
                except Exception as e:
                    self.fail(f"load {name}: {e}")
            for line in process.text().splitlines():
                said = json.loads(line) if line.startswith("{") else {"text": line}
                if "what" in said:
                    action = self.excuse(said)
                    errors[(action or "NOTHING", said["role"], said["kind"], said["what"])] += 1
                    if not action:
                        self.fail(f"{name}: {said} ({said['at'] - self.began:.2f} s)")
                elif "totals" in said:
                    totals.setdefault(said["kind"], collections.Counter()).update(said["totals"])
                    longest = max(longest, said["longest_connect"])
                elif "text" in said:
                    self.fail(f"{name}: {line}")
        return totals, errors, longest

    def judge_load(self, totals):
        """Checks that the agents were loaded enough for a verdict."""
        transfers = {kind: totals.get(kind, {}).get("transfers", 0) for kind in KINDS}
        for kind, count in transfers.items():
            if count == 0:
                self.fail(f"no transfer of kind {kind}")
        smcd, all_of_them = self.paths["smcd"] / 2, sum(transfers.values())  # each has two agents
        if smcd <= SMCD_SHARE * all_of_them:
            self.fail(f"of {all_of_them} connections only {smcd:g} went over SMC-D")
        if not any(self.decisions[name] for name in REACHED):
            self.fail("no limit was reached")
        if not any(before for *_, before in self.rows):
            self.fail("no figures were compared")

    def summary(self):
        totals, errors, longest = self.judge()
        self.judge_load(totals)
        print(f"\nseed {self.seed}, {self.seconds:g} s of load in {time.monotonic() - self.began:.0f} s")
        print(f"{'':12}{'transfers':>12}{'broken':>10}{'MB':>12}{'connects > 1 s':>16}")
        for kind in KINDS:
            t = totals.get(kind, collections.Counter())
            figures = f"{t['transfers']:12}{t['broken']:10}{t['bytes'] / 1e6:12.1f}{t['slow connects']:16}"
            print(f"{kind:12}{figures}")
        print(f"longest connect() {longest:.2f} s")
        print("connections by path, both agents: " + ", ".join(f"{k} {v}" for k, v in sorted(self.paths.items())))
        print("decisions: " + ", ".join(f"{k} {v}" for k, v in sorted(self.decisions.items()) if v))
        print("disturbances: " + ", ".join(f"{action} {count}" for action, count in sorted(self.done.items())))
        print("errors, by what explains them:")
        for (action, role, kind, what), count in sorted(errors.items()):
            print(f"    {action:8}{role:8}{kind:10}{what}: {count}")
        keys = list(self.rows[0][3]) if self.rows else []
        print("figures; MARGINS: " + ", ".join(f"{key} + {margin}" for key, margin in MARGINS.items()))
        print(f"{'after stage':18}{'agent':14}" + "".join(f"{key.replace('smc_', ''):>12}" for key in keys))
        for name, node, pid, figures, before in self.rows:
            told = f", as after {before}" if before else ""
            print(f"{name:18}{node} {pid:<12}" + "".join(f"{figures[key]:12}" for key in keys) + told)
        for node in self.nodes:
            levels = collections.Counter(
                " ".join(line.split()[1:5])
                for line in node.agent_log().splitlines()
                if line.split()[1:2] == ["warning"]
            )
            print(f"warnings of agent {node.name}: {dict(levels.most_common(5))}")
            lines = node.agent_log().splitlines()
            errors = [line for line in lines if line.split()[1:2] in (["error"], ["critical"])]
            for line in errors[:10]:
                self.fail(f"agent {node.name}: {line}")
        print(f"{len(self.failures)} failures" if self.failures else "all well")
        for failure in self.failures[:50]:
            print("  " + failure)


def main():
    seconds = float(os.environ.get("SMC_SOAK_SECONDS") or 3600)
    seed = int(os.environ.get("SMC_SOAK_SEED") or random.randrange(1 << 31))
    print(f"soak: seed {seed}, {seconds:g} s", flush=True)
    with Lab("soak") as lab:
        tag = lab.tag
        soak = Soak(lab, seconds, seed)
        try:
            soak.start()
            soak.run()
        except Exception as e:
            soak.fail(f"{type(e).__name__}: {e}")
            open(f"{lab.run}/stop", "w").close()
        soak.summary()
    left = [path for place in ("/run", "/run/netns", "/sys/fs/bpf") for path in glob.glob(f"{place}/{tag}*")]
    if left:
        soak.fail(f"left behind: {left}")
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
