# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs socket_cases.py on plain TCP, where the server is asked and does not speak SMC, and on SMC-D, and compares.

    fidelity.py [--only CASE] [--modes smcd,asked,bypass] [--families 4,6]

Nothing may differ. In mode "bypass" each pair of sockets is bypassed before the case begins, as if the case were a
program that changes its habits: there the cases in KNOWN differ, and no other case may.
"""
import argparse
import json
import multiprocessing
import os
import select
import signal
import socket
import sys
import time
import traceback

import socket_cases
from lab.basics import sh, wait_for
from lab.nodes import Lab, enter_netns

FAMILIES = {"4": socket.AF_INET, "6": socket.AF_INET6}


# Cases that differ on a kernel without guards (`smcctl probe`), where a socket that has only received without waiting
# does something else for the first time: {case: why}.
KNOWN = {
    "splice_both_ways": "splice() does not find what was redirected",
    "urgent_data": "the first urgent byte is an ordinary one",
    "urgent_inline": "likewise",
    "urgent_twice_and_back": "likewise",
    "zerocopy": "the numbers of completions",
}


class WarmBench(socket_cases.Bench):
    """Its pairs first exchange messages without waiting; with an agent, until it bypasses them."""

    agent = None

    def pair(self):
        client, server = super().pair()
        for sock in (client, server):
            sock.setblocking(False)
        for _ in range(40):
            for one, other in ((client, server), (server, client)):
                one.send(b"warm")
                select.select([other], [], [], 10)
                assert other.recv(100) == b"warm"
        if self.agent:
            end = f":{client.getsockname()[1]}"
            wait_for("the pair to be bypassed", lambda: self.bypassed(end) == 2, 60)
        for sock in (client, server):
            sock.settimeout(0.7)  # Python then uses a non-blocking socket and poll()
        return client, server

    def bypassed(self, end):
        return sum(c["path"] == "bypass" and c["client"].endswith(end) for c in self.agent.connections())


class Stuck(Exception):
    """A case does not end. This is no OSError, because cases take an OSError for a result."""


def enter(node):
    enter_netns(node.netns)  # first, or the agent would see the host's namespace in its cgroup
    with open(f"{node.apps}/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))


def enter_another(node, port):
    """Enters a new cgroup, whose programs have no known habits."""
    node.apps = os.path.join(os.path.dirname(node.apps), str(port))
    os.makedirs(node.apps, exist_ok=True)
    enter(node)


def serve_listeners(node, channel, another):
    """In the server's namespace and cgroup: makes listeners on request and hands them over."""
    enter(node)
    while True:
        request = channel.recv(1024)
        if not request:
            return
        if another:
            enter_another(node, json.loads(request)[1][1])
        family, address = json.loads(request)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(tuple(address))
            sock.listen(16)
            socket.send_fds(channel, [b"f"], [sock.fileno()])
            sock.close()
            channel.send(b"c")  # the other side has the only descriptor now: its close() ends the listener
        except OSError as error:
            sock.close()
            channel.send(str(error).encode())


class ListenerSource:
    def __init__(self, node, another=False):
        ours, theirs = socket.socketpair()
        self.channel = ours
        self.process = multiprocessing.Process(target=serve_listeners, args=(node, theirs, another), daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, family, address):
        self.channel.send(json.dumps([family, list(address)]).encode())
        data, fds, _, _ = socket.recv_fds(self.channel, 1, 1)
        if not fds:
            raise OSError((data + self.channel.recv(1024)).decode())
        self.channel.recv(1)
        return socket.socket(fileno=fds[0])


def places(family, listen, own):
    v6 = family == socket.AF_INET6
    at = (lambda a: (a, 5999, 0, 0)) if v6 else (lambda a: (a, 5999))
    return {
        "net": at("fd99::1" if v6 else "10.200.0.1"),
        "host": at("fd77:1::99" if v6 else "10.77.0.99"),
        "silent": at("fd77:1::77" if v6 else "10.77.0.77"),
        "prohibited": at("fd98::1" if v6 else "10.201.0.1"),
        "own": own,
        "listen": listen,
    }


def run_cases(kind, client, server, listen, family_name, first_port, only):
    """In the client's node. Returns {case: [line, ...]}, and what is wrong with the cases themselves."""
    enter(client)

    def stuck(*_):
        raise Stuck("the case is stuck")

    signal.signal(signal.SIGALRM, stuck)
    family = FAMILIES[family_name]
    own = client.ip6 if family == socket.AF_INET6 else client.ip4
    target = server.ip6 if family == socket.AF_INET6 else server.ip4
    outcome, flaws = {}, []
    for port, case in enumerate(socket_cases.CASES, start=first_port):
        if only and case.__name__ != only:
            continue
        address = (target, port, 0, 0) if family == socket.AF_INET6 else (target, port)
        bench = kind(
            listen(family, ("::" if family == socket.AF_INET6 else "0.0.0.0", port)),
            address,
            family,
            places(family, listen, own),
        )
        if kind is WarmBench:
            enter_another(client, port)
        lines = outcome.setdefault(case.__name__, [])
        if os.environ.get("TRACE"):
            print(f"{time.monotonic():.1f} {case.__name__}", file=sys.stderr, flush=True)
        signal.alarm(30)
        try:
            for line in case(bench):
                lines.append(repr(line))
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
            if not isinstance(error, OSError):  # an OSError is a result of TCP
                flaws.append(f"IPv{family_name} {case.__name__}: {lines[-1]}")
            if os.environ.get("TRACE"):
                traceback.print_exc()
        finally:
            signal.alarm(0)
            bench.close()
            bench.listener.close()
    return outcome, flaws


def in_child(function, *arguments):
    ours, theirs = multiprocessing.Pipe(False)
    process = multiprocessing.Process(target=lambda: theirs.send(function(*arguments)))
    process.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        raise RuntimeError("a child ended without a result")
    process.join()
    return result


def dead_ends(client):
    """Addresses that fail in known ways."""
    sh("ip", "-n", client.netns, "route", "add", "prohibit", "10.201.0.0/16")
    sh("ip", "-n", client.netns, "-6", "route", "add", "prohibit", "fd98::/16")
    for address in ("10.77.0.77", "fd77:1::77"):
        sh("ip", "-n", client.netns, "neigh", "add", address, "lladdr", "02:00:00:00:00:77", "dev", client.device)


def compare(mode, family, plain, other):
    wrong = []
    for case, lines in plain.items():
        differs = other[case] != lines
        print(f"{'differs' if differs else 'same':8} {mode} IPv{family} {case}")
        if differs:
            wrong.append(f"{mode} IPv{family} {case}")
            for a, b in zip(lines + ["(nothing)"] * len(other[case]), other[case] + ["(nothing)"] * len(lines)):
                if a != b:
                    print(f"           tcp  {a}\n           {mode:4} {b}")
    return wrong


def check_path(client, mode, options, families):
    """Checks that the connections took the path, without which the comparison means nothing."""
    totals, decisions = client.agent.totals(), client.agent.decisions()
    print("paths of the client's agent:", totals)
    print("its decisions:", {name: count for name, count in decisions.items() if count})
    taken = totals.get(("smcd", "none"), 0) if mode == "smcd" else decisions["SMC_ANSWER_PLAIN"]
    # Cases without a connection, or with one that is plain by design, are fewer than a fifth.
    expected = 0 if options.only else len(families) * len(socket_cases.CASES) * 4 // 5
    others = {path: n for path, n in totals.items() if path != ("smcd", "none") and path[0] in ("smcd", "fallback")}
    assert ("refused", "internal") not in totals, totals
    assert taken >= expected and not others, f"{taken} of at least {expected} connections were {mode}: {totals}"
    assert decisions["SMC_OUT_AGENT_FULL"] == decisions["SMC_OUT_AGENT_STALE"] == 0, decisions


def run_bypassed(lab, client, server, run, families, next_port):
    """Runs the cases between two pods of one node that has no other pods."""
    node = lab.node("n")
    for pod in (client, server):
        pod.apps = f"{node.cgroup}/pods/{pod.name}/0"
        os.makedirs(pod.apps)
        pod.popen(["sleep", "3600"])
    listen = ListenerSource(server, another=True)
    plain, wrong = run(WarmBench, listen)
    first = next_port()
    for port in (first + 1000 * family + case for family in range(2) for case in range(len(socket_cases.CASES))):
        for pod in (client, server):  # before the agent looks
            os.makedirs(f"{node.cgroup}/pods/{pod.name}/{port}")
    WarmBench.agent = node.start_agent(local={"bypass": "force"})
    wait_for("the pods' namespaces", lambda: node.agent.prepared() == 3)
    bypassed, _ = run(WarmBench, listen)
    listen.channel.close()
    for family in families:
        wrong += compare("bypass", family, plain[family], bypassed[family])
    return [line for line in wrong if line.split()[-1] not in KNOWN]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--modes", default="smcd,asked")
    parser.add_argument("--families", default="4,6")
    options = parser.parse_args()
    modes, families = options.modes.split(","), options.families.split(",")
    multiprocessing.set_start_method("fork")
    with Lab("fidelity") as lab:
        client, server = lab.node("a"), lab.node("b")
        lab.link(client, server)
        dead_ends(client)
        listen = ListenerSource(server)
        port = 20000

        def run(kind=socket_cases.Bench, listen=listen):
            nonlocal port
            results, flaws = {}, []
            for family in families:
                results[family], more = in_child(run_cases, kind, client, server, listen, family, port, options.only)
                flaws += more
                port += 1000
            return results, flaws

        plain, wrong = run()  # a case that fails on plain TCP cannot be compared
        short = {"smc": {"step_timeout_ms": 2000}, "fallback": {"budget_ms": 10000}}
        if "asked" in modes:
            client.start_agent(**short)
            asked, _ = run()
            check_path(client, "asked", options, families)
            for family in families:
                wrong += compare("asked", family, plain[family], asked[family])
            client.agent.stop()
        if "smcd" in modes:
            client.start_agent(**short)
            server.start_agent(**short)
            smcd, _ = run()
            check_path(client, "smcd", options, families)
            for family in families:
                wrong += compare("smcd", family, plain[family], smcd[family])
            client.agent.stop()
            server.agent.stop()
        if "bypass" in modes:
            wrong += run_bypassed(lab, client, server, run, families, lambda: port)
        listen.channel.close()
    print(
        f"{len(plain[families[0]])} cases, {len(families)} families, {len(modes)} paths: "
        f"{len(wrong)} unexpected outcomes"
    )
    for line in wrong:
        print("  unexpected:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
