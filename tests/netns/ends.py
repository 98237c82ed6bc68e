# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""How connections end: what each side may still read, and what it hears, on plain TCP and on each way of the agent.

    ends.py [--ways smcd,ivshmem,joined,agents] [--only TEXT] [--table]

One side ends the connection in one of several ways (end_cases.py); the other one reads at once, or so late that every
timeout of the agent and TCP's FIN-WAIT-2 have passed. It reads the same bytes as on plain TCP in the same run, or more,
and hears the same. What may differ is in KNOWN, with its reason. With `agents` an agent ends, for which TCP has no
counterpart: expected() says what must happen then. --table prints what TCP does, for docs/fidelity.md.
"""
import argparse
import itertools
import multiprocessing
import os
import signal
import sys
import threading

import end_cases
from fidelity import ListenerSource, in_child
from lab.basics import wait_for
from lab.nodes import Lab

STRIPS_ANSWERS = "tcp flags & (syn|ack) == syn|ack reset tcp option 254"
KNOWN = {
    "shutdown, killed, unread": "a leg cannot tell this reset from that of an application that is gone long after its "
    "FIN, of which TCP says nothing: the other side reads all, and hears of it when it writes",
}


def amount(word):
    """Of a stream that is reset with bytes on their way, any part may arrive, also with TCP."""
    return 1 if "bytes" in word else 2 if word == "read all" else 0


def differs(outcome, plain, known=False):
    """Whether the other side reads less than on plain TCP, or hears something else, unless that is known."""
    if len(outcome) != len(plain):
        return True
    for ours, tcps in zip(outcome, plain):
        if ours.startswith("read") and amount(ours) < amount(tcps):
            return True
        if not ours.startswith("read") and ours != tcps and not known:
            return True
    return False


def expected(case, enders_agent):
    """The outcome when the agent of the ender, or of the reader, ends. None: any number of bytes."""
    _, state, size, reader = case
    if enders_agent and state != "open":
        return "all", "end"  # everything has reached the reader's node
    if size == "some":
        return "all" if enders_agent and reader == "at once" else None, "ECONNRESET"
    return "all", "ECONNRESET" if state == "open" else "end"


def linked(lab):
    """A client and a server, behind a router that can take options out of packets."""
    client, box, server = (lab.node(name) for name in ("a", "box", "b"))
    lab.link(client, box)
    near = box.ip4
    lab.link(box, server)
    client.run(["ip", "route", "add", server.ip4, "via", near], check=True)
    server.run(["ip", "route", "add", "10.78.0.0/24", "via", box.ip4], check=True)
    box.run(["ip", "route", "add", "10.78.0.0/24", "via", client.ip4], check=True)
    box.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
    for number in range(len(end_cases.CASES)):
        client.run(["ip", "addr", "add", end_cases.own_address(number), "dev", client.device], check=True)
    for node in (client, server):
        node.run(["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=1"], check=True)
    return client, box, server


def compare(way, outcomes, plain):
    wrong = 0
    for case, outcome in outcomes.items():
        if differs(outcome, plain[case], case[1] in KNOWN):
            wrong += 1
            print(f"differs {way}: {': '.join(case)}\n    tcp: {'; '.join(plain[case])}")
            print(f"    {way}: {'; '.join(outcome)}")
    return wrong


def start(way, box, client, server):
    """Starts agents between which all connections go this way."""
    more = {"ism": {"provider": "ivshmem", "device": box.area}} if way == "ivshmem" else {}
    rules = f"{STRIPS_ANSWERS}; {STRIPS_ANSWERS};" if way == "joined" else ""  # a rule takes out one option
    table = f"table inet t {{ chain c {{ type filter hook forward priority 0; {rules} }}; }}"
    box.run(["nft", f"flush ruleset; {table}"], check=True)
    for node in (client, server):
        node.start_agent(**end_cases.TIMES, **more)


def run_way(way, run, box, client, server):
    start(way, box, client, server)
    outcomes = run(end_cases.run)
    totals = (server if way == "joined" else client).agent.totals()
    print(f"{way}: paths of the agent: {totals}")
    path = ("fallback", "answer_lost") if way == "joined" else ("smcd", "none")
    assert totals.get(path, 0) >= len(outcomes), f"not all connections went this way: {totals}"
    for node in (client, server):
        node.agent.stop()
    return outcomes


def end_an_agent(run, box, client, server, ending, how):
    """All cases of an agent's end. Returns the number of outcomes that are not as expected."""
    start("smcd", box, client, server)
    ours, theirs = multiprocessing.Pipe()

    def stop():
        total = ours.recv()
        sent = lambda: sum(c["bytes_sent"] for node in (client, server) for c in node.agent.connections())
        try:
            wait_for("all bytes to be in a ring or further", lambda: sent() == total)
        finally:
            ending.agent.stop(how)
            ours.send("ended")

    threading.Thread(target=stop, daemon=True).start()
    outcomes = run(end_cases.run_while_an_agent_ends, theirs)
    (server if ending is client else client).agent.stop()
    wrong = 0
    for case, (read, then, wrote) in outcomes.items():
        enders = (ending is client) == (case[0] == "client")
        all_of_it, how_it_ends = expected(case, enders)
        if then != how_it_ends or (all_of_it and read not in ("read all", "read nothing")) or wrote[-5:] != "EPIPE":
            wrong += 1
            whose = "ender's" if enders else "reader's"
            print(f"unexpected when the {whose} agent ends by {how.name}: {': '.join(case)}: {read}; {then}; {wrote}")
    print(f"an agent ends by {how.name}: {len(outcomes)} connections")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", default="smcd,ivshmem,joined,agents")
    parser.add_argument("--only")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    ways = options.ways.split(",")
    multiprocessing.set_start_method("fork")
    wrong = 0
    with Lab("ends") as lab:
        client, box, server = linked(lab)
        box.area = os.path.join(lab.run, "area")
        with open(box.area, "wb") as file:
            file.truncate(1 << 30)
        listen = ListenerSource(server)
        ports = itertools.count(20000, 200)
        run = lambda cases, *more: in_child(cases, listen, client, server, next(ports), options.only, *more)
        plain = run(end_cases.run)
        if options.table:
            for case, outcome in plain.items():
                print(f"{': '.join(case)}: {'; '.join(outcome)}")
        for way in ways:
            if way != "agents":
                wrong += compare(way, run_way(way, run, box, client, server), plain)
        if "agents" in ways:
            for ending, how in itertools.product((client, server), (signal.SIGTERM, signal.SIGKILL)):
                wrong += end_an_agent(run, box, client, server, ending, how)
        listen.channel.close()
    print(f"{len(plain)} ends of connections, {len(ways)} ways: {wrong} unexpected outcomes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
