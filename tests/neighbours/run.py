# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Other programs of a node beside the agent: one experiment a file, whose first line names public reports.

    run.py [NAME ...] [--list] [--only CASE]    without names all of them, and the table of docs/fidelity.md

An experiment has PATH, the path that connections take beside it ("smcd" or "tcp"), come(scene), go(scene) and a
docstring, whose first line is its row of the table. Each runs in a laboratory of its own:

    1. the neighbour comes; the cases of fidelity.py on plain TCP, and then with agents: nothing may differ
    2. connections begin, the neighbour goes, and comes again: each byte of theirs arrives, unless plain TCP loses some
    3. the neighbour goes; connections begin, it comes, and goes again: likewise
    4. the last two between two pods of one agent, with the bypass

It may also have CONFIG, of the agents; CASES = False, if it breaks cases of plain TCP now and then, so that these
cannot be compared; KNOWN, {case: why it differs}; LOSES = True, if connections of plain TCP do not survive its going.
"""
import argparse
import importlib
import multiprocessing
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "netns")]

import fidelity  # noqa: E402
import socket_cases  # noqa: E402
import streams  # noqa: E402
from lab.basics import wait_for  # noqa: E402
from lab.nodes import Lab  # noqa: E402
from scene import Pods, Scene  # noqa: E402

COMMON = ("run", "scene", "streams")
FIRST_PORT = 20000
ROUNDS = 20  # exchanges of each connection between two changes


def names():
    return sorted(name[:-3] for name in os.listdir(HERE) if name.endswith(".py") and name[:-3] not in COMMON)


class Experiment:
    def __init__(self, name, only):
        self.neighbour, self.only = importlib.import_module(name), only
        self.name, self.port = name, FIRST_PORT

    def cases(self):
        """The outcome of each case, and what is wrong with the case itself."""
        run = (socket_cases.Bench, self.scene.client, self.scene.server, self.listen, "4", self.port, self.only)
        self.port += 1000
        return fidelity.in_child(fidelity.run_cases, *run)

    def use(self, channel, progress, stop, port):
        """In a child: connections that are used until `stop` is set."""
        fidelity.enter(self.scene.client)
        lock = threading.Lock()

        def connect():
            with lock, self.listen(socket_cases.socket.AF_INET, ("0.0.0.0", port)) as listener:
                client = socket_cases.socket.create_connection((self.scene.server.ip4, port), streams.LIMIT)
                return client, listener.accept()[0]

        channel.send(streams.run(connect, progress, stop))

    def connections_live_through(self, *changes):
        """Errors of connections that are used before, between and after these changes of the neighbour."""
        progress, stop = multiprocessing.Array("l", len(streams.USES), lock=False), multiprocessing.Event()
        ours, theirs = multiprocessing.Pipe()
        self.port += 1
        child = multiprocessing.Process(target=self.use, args=(theirs, progress, stop, self.port))
        child.start()
        theirs.close()

        def go_on():
            before = list(progress)
            moved = lambda: all(now < 0 or now >= was + ROUNDS for now, was in zip(progress, before))
            wait_for("the connections to be used", moved, 2 * streams.LIMIT)

        try:
            go_on()
            if self.scene.hosts[0].agent:
                self.seen.update(c["path"] for c in self.scene.hosts[0].agent.connections(self.port))
            for change in changes:
                change(self.scene)
                go_on()
        finally:
            stop.set()
            errors = ours.recv()
            child.join()
        return errors

    def compare_cases(self, plain, ours):
        path = "smcd" if self.neighbour.PATH == "smcd" else "tcp"
        known = getattr(self.neighbour, "KNOWN", {})
        for name, lines in plain.items():
            if any(line.startswith(("Stuck", "'never")) for line in lines) or name in known:
                why = known.get(name, "plain TCP beside it does not end it")
                print(f"{self.name}: {name} is not compared: {why}; with agents: {ours[name][-1:]}")
                ours[name] = lines
        return fidelity.compare(path, "4", plain, ours)

    def lives(self):
        """What connections suffer while the neighbour goes and comes, and then while it comes and goes; it is there
        before, and is gone afterwards."""
        come, go = self.neighbour.come, self.neighbour.go
        through_absence = self.connections_live_through(go, come)
        go(self.scene)
        return through_absence, self.connections_live_through(come, go)

    def paths(self):
        """{(path, reason): count} of connections that began beside the neighbour, or before it came."""
        totals = self.scene.hosts[0].agent.totals()
        for host in self.scene.hosts:
            print(f"{self.name}: {totals}", {name: count for name, count in host.agent.decisions().items() if count})
        return totals

    def compare(self, kind, with_cases):
        """In a laboratory: the outcomes that are worse than those of plain TCP, and paths beside the neighbour."""
        with Lab(f"neighbours.{self.name}") as lab:
            self.scene, self.seen = kind(lab), set()
            self.listen = fidelity.ListenerSource(self.scene.server)
            self.neighbour.come(self.scene)
            plain, _ = self.cases() if with_cases else ({}, None)
            plain_lives = self.lives()
            self.neighbour.come(self.scene)
            self.scene.start(**getattr(self.neighbour, "CONFIG", {}))
            wrong = self.compare_cases(plain, self.cases()[0]) if with_cases else []
            lives = self.lives()
            for what, ours, tcps in zip(("goes and comes", "comes and goes"), lives, plain_lives):
                if ours or tcps:
                    print(f"{self.name}: it {what}: connections of plain TCP: {tcps}; with agents: {ours}")
                if not tcps and not getattr(self.neighbour, "LOSES", False):
                    wrong += [f"it {what}: {error}" for error in ours]
            paths = self.paths()
            self.scene.stop()
            self.listen.channel.close()
            return wrong, paths, len(plain)

    def run(self):
        wrong, paths, cases = self.compare(Scene, getattr(self.neighbour, "CASES", True))
        smcd = paths.pop(("smcd", "none"), 0)
        late = len(streams.USES)  # connections that began when the neighbour was gone
        if self.neighbour.PATH == "smcd":
            right = smcd >= 2 * late + (0 if self.only else cases * 4 // 5)
        else:
            right = smcd <= late  # what was learnt of the server may last
        if not right:
            wrong.append(f"{smcd} connections were SMC-D, others: {paths}")
        more, _, _ = self.compare(Pods, False)
        print(f"{self.name}: paths between pods: {', '.join(sorted(self.seen))}")
        return wrong + [f"between pods: {line}" for line in more]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", help="one case of socket_cases.py")
    options = parser.parse_args()
    chosen = options.names or names()
    if options.list:
        print("\n".join(names()))
        return 0
    multiprocessing.set_start_method("fork")
    rows, failed = [], 0
    for name in chosen:
        experiment = Experiment(name, options.only)
        try:
            wrong = experiment.run()
        except Exception as error:  # the others are still of interest
            wrong = [f"{type(error).__name__}: {error}"]
        for line in wrong:
            print(f"  unexpected: {name}: {line}", flush=True)
        failed += bool(wrong)
        title = experiment.neighbour.__doc__.splitlines()[0].rstrip(".")
        path = {"smcd": "SMC", "tcp": "plain TCP"}[experiment.neighbour.PATH]
        rows.append(f"| {title} | {path} | {f'{len(wrong)} differ' if wrong else 'same'} |")
    print("\n".join(["| neighbour | new connections | outcome |", "|---|---|---|", *rows]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
