# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""How connections end: what each side may still read, and what it hears, on plain TCP and on each way of the agent.

    ends.py [--ways smcd,ivshmem,joined,agents] [--only TEXT] [--table]

One side ends the connection in one of several ways (end_cases.py); the other one reads at once, or so late that every
timeout of the agent and TCP's FIN-WAIT-2 have passed. It reads the same bytes as on plain TCP in the same run, or more,
and hears the same. With `agents` an agent ends, for which TCP has no counterpart: expected() says what must happen.
--table prints what TCP does, for docs/fidelity.md.
"""
import argparse
import itertools
import multiprocessing
import signal
import sys
import threading

import end_cases
from fidelity import ListenerSource, in_child
from lab.basics import wait_for
from lab.nodes import Lab
from ways import Ways


# An end and a reset that reach the leg together count as a reset; one that follows waits until the other side has all
# bytes. So what the other side hears of the two may differ. It reads no less, and its writes fail.
KNOWN = "shutdown, killed, unread"


def amount(word):
    """Of a stream that is reset with bytes on their way, any part may arrive, also with TCP."""
    return 2 if word == "read all" else 0 if word in ("read nothing", "read 0 bytes") else 1


def differs(case, outcome, plain):
    """Whether the other side reads less than on plain TCP, or hears something else."""
    more = False
    for ours, tcps in zip(outcome, plain):
        if ours.startswith("read"):
            more = amount(ours) > amount(tcps)
            if amount(ours) < amount(tcps):
                return True
        elif ours == "end" and tcps == "ECONNRESET" and more:
            continue  # it has read everything, in front of the reset
        elif ours != tcps and not (case[1] == KNOWN and ours.split()[-1] in ("end", "ECONNRESET", "EPIPE")):
            return True
    return len(outcome) != len(plain) or outcome[-1][-5:] != plain[-1][-5:]


def expected(case, enders_agent):
    """The outcome when the agent of the ender, or of the reader, ends. None: any number of bytes."""
    _, state, size, reader = case
    if enders_agent and state != "open":
        return "all", "end"  # everything has reached the reader's node
    if size == "some":
        return "all" if enders_agent and reader == "at once" else None, "ECONNRESET"
    return "all", "ECONNRESET" if state == "open" else "end"


def compare(way, outcomes, plain):
    wrong = 0
    for case, outcome in outcomes.items():
        if differs(case, outcome, plain[case]):
            wrong += 1
            print(f"differs {way}: {': '.join(case)}\n    tcp: {'; '.join(plain[case])}")
            print(f"    {way}: {'; '.join(outcome)}")
    return wrong


def end_an_agent(run, ways, ending, how):
    """All cases of an agent's end. Returns the number of outcomes that are not as expected."""
    ways.start("smcd")
    ours, theirs = multiprocessing.Pipe()

    def stop():
        total = ours.recv()
        sent = lambda: sum(c["bytes_sent"] for node in (ways.client, ways.server) for c in node.agent.connections())
        try:
            wait_for("all bytes to be in a ring or further", lambda: sent() == total)
        finally:
            ending.agent.stop(how)
            ours.send("ended")

    threading.Thread(target=stop, daemon=True).start()
    outcomes = run(end_cases.run_while_an_agent_ends, theirs)
    ways.stop()
    wrong = 0
    for case, (read, then, wrote) in outcomes.items():
        enders = (ending is ways.client) == (case[0] == "client")
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
    wanted = options.ways.split(",")
    multiprocessing.set_start_method("fork")
    wrong = 0
    with Lab("ends") as lab:
        ways = Ways(lab, **end_cases.TIMES)
        for node in (ways.client, ways.server):
            node.run(["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=1"], check=True)
        listen = ListenerSource(ways.server)
        ports = itertools.count(20000, 200)
        run = lambda cases, *more: in_child(cases, listen, ways, next(ports), options.only, *more)
        plain = run(end_cases.run)
        if options.table:
            for case, outcome in plain.items():
                print(f"{': '.join(case)}: {'; '.join(outcome)}")
        for way in wanted:
            if way != "agents":
                ways.start(way)
                outcomes = run(end_cases.run)
                ways.check(way, len(outcomes))
                ways.stop()
                wrong += compare(way, outcomes, plain)
        if "agents" in wanted:
            for ending, how in itertools.product((ways.client, ways.server), (signal.SIGTERM, signal.SIGKILL)):
                wrong += end_an_agent(run, ways, ending, how)
        listen.channel.close()
    print(f"{len(plain)} ends of connections, {len(wanted)} ways: {wrong} unexpected outcomes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
