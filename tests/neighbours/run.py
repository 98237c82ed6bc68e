# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Other programs of a node beside the agent: one experiment a file, whose first line names public reports.

    run.py [NAME ...] [--list] [--only CASE]    without names all of them, and the table of docs/fidelity.md

An experiment has PATH, the path of new connections between nodes beside it ("smcd" or "tcp"), come(scene), go(scene)
and a docstring, whose first line is its row of the table. Each runs in a laboratory of its own:

    1. the neighbour comes; the cases of fidelity.py, on plain TCP and then with agents: nothing may differ
    2. connections begin, the neighbour goes, and comes again: each byte of theirs arrives
    3. the neighbour goes; connections begin, it comes, and goes again: likewise
    4. new connections are SMC-D
    5. the second and the third between two pods of one agent, with the bypass

An experiment may have more:

    CONFIG = {...}         of the agents
    CASES = False          it breaks cases of plain TCP now and then, so that these cannot be compared
    KNOWN = {case: why}    cases that differ; DIFFERS: the same in a few words, for the table
    LOSES = True           when it goes, bytes may be lost, of plain TCP, too; so errors are not judged from then on
    BYPASS = False         connections between pods that began beside it are not bypassed, not even when it has gone;
                           None: they may be when it has gone, which depends on how soon they prove fit
"""
import argparse
import importlib
import multiprocessing
import os
import socket
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "netns")]

import fidelity  # noqa: E402
import socket_cases  # noqa: E402
import streams  # noqa: E402
from lab.basics import Timeout, wait_for  # noqa: E402
from lab.nodes import Lab  # noqa: E402
from scene import Pods, Scene  # noqa: E402

DEFAULTS = {"CONFIG": {}, "CASES": True, "KNOWN": {}, "DIFFERS": "", "LOSES": False, "BYPASS": True}
COMMON = ("run", "scene", "streams")
FIRST_PORT = 20000
MOST_BROKEN = 2  # cases that plain TCP beside a neighbour may break
ROUNDS = 20  # exchanges of each connection between two changes


def names():
    return sorted(name[:-3] for name in os.listdir(HERE) if name.endswith(".py") and name[:-3] not in COMMON)


class Experiment:
    def __init__(self, name, only):
        self.neighbour, self.only = importlib.import_module(name), only
        for trait, value in DEFAULTS.items():
            setattr(self.neighbour, trait, getattr(self.neighbour, trait, value))
        self.name, self.port = name, FIRST_PORT

    def cases(self):
        """The outcome of each case, and what is wrong with the case itself."""
        run = (socket_cases.Bench, self.scene.client, self.scene.server, self.listen, "4", self.port, self.only)
        self.port += 1000
        return fidelity.in_child(fidelity.run_cases, *run)

    def use(self, channel, progress, phase, stop, port):
        """In a child: connections that are used until `stop` is set."""
        fidelity.enter(self.scene.client)
        lock = threading.Lock()

        def connect():
            with lock, self.listen(socket.AF_INET, ("0.0.0.0", port)) as listener:
                listener.settimeout(streams.LIMIT)
                client = socket.create_connection((self.scene.server.ip4, port), streams.LIMIT)
                return client, listener.accept()[0]

        channel.send(streams.run(connect, progress, phase, stop))

    def connections_live_through(self, *changes):
        """[(number of changes until then, error), ...] of connections that are used before, between and after these
        changes of the neighbour."""
        progress = multiprocessing.Array("l", len(streams.USES), lock=False)
        phase, stop = multiprocessing.Value("i", 0), multiprocessing.Event()
        ours, theirs = multiprocessing.Pipe()
        self.port += 1
        arguments = (theirs, progress, phase, stop, self.port)
        child = multiprocessing.Process(target=self.use, args=arguments, daemon=True)
        child.start()
        theirs.close()

        def go_on():
            before = list(progress)
            moved = lambda: all(now < 0 or now >= was + ROUNDS for now, was in zip(progress, before))
            wait_for("the connections to be used", moved, 3 * streams.LIMIT)

        try:
            go_on()
            for change in changes:
                phase.value += 1
                change(self.scene)
                go_on()
            stop.set()
            if not ours.poll(3 * streams.LIMIT):
                raise RuntimeError("connections do not end")
            return ours.recv()
        finally:
            child.kill()
            child.join()

    def compare_cases(self, plain, ours, flaws):
        known = self.neighbour.KNOWN
        broken = [name for name, lines in plain.items() if any(line.startswith(("Stuck", "'never")) for line in lines)]
        for name in {*known, *broken} & set(plain):
            print(
                f"{self.name}: {name} is not compared: {known.get(name, 'plain TCP breaks')}; ours: {ours[name][-1:]}"
            )
            ours[name] = plain[name]
        wrong = fidelity.compare(self.neighbour.PATH, "4", plain, ours)
        if len(set(broken) - set(known)) > MOST_BROKEN:
            wrong.append(f"plain TCP beside it breaks {', '.join(broken)}: too many cases are not compared")
        return wrong + [flaw for flaw in flaws if flaw.split()[1].rstrip(":") not in broken]

    def lives(self):
        """What connections suffer while the neighbour goes and comes, and then while it comes and goes. It is there
        before, and is gone afterwards."""
        come, go = self.neighbour.come, self.neighbour.go
        through_absence = self.connections_live_through(go, come)
        if self.scene.hosts[0].agent:
            self.beside = self.scene.hosts[0].agent.totals()
        go(self.scene)
        return through_absence, self.connections_live_through(come, go)

    def compare_lives(self, ours, plain):
        """Errors with agents, and those of plain TCP, with which nothing can be compared; none counts from the moment
        on when the neighbour's going may lose bytes."""
        wrong = []
        for what, going, errors, tcps in zip(("goes and comes", "comes and goes"), (1, 2), ours, plain):
            if errors or tcps:
                print(f"{self.name}: it {what}: errors of plain TCP: {tcps}; with agents: {errors}")
            for path, found in (("", errors), ("plain TCP: ", tcps)):
                counted = [text for when, text in found if not self.neighbour.LOSES or when < going]
                wrong += [f"it {what}: {path}{text}" for text in counted]
        return wrong

    def smcd_again(self):
        """Whether new connections are SMC-D when the neighbour has gone."""
        agent = self.scene.hosts[0].agent
        count = lambda: agent.totals().get(("smcd", "none"), 0)
        before = count()

        def again():
            self.connections_live_through()
            return count() > before

        try:
            wait_for("SMC-D", again)
        except Timeout:
            return [f"nothing is SMC-D when it has gone: {agent.totals()}"]
        return []

    def compare(self, kind, with_cases):
        """In a laboratory: outcomes that are worse than those of plain TCP, and paths of connections that began beside
        the neighbour."""
        with Lab(f"neighbours.{self.name}") as lab:
            self.scene = kind(lab)
            self.listen = fidelity.ListenerSource(self.scene.server)
            self.neighbour.come(self.scene)
            plain, flaws = self.cases() if with_cases else ({}, [])
            plain_lives = self.lives()
            self.neighbour.come(self.scene)
            self.scene.start(**self.neighbour.CONFIG)
            wrong = self.compare_cases(plain, self.cases()[0], flaws) if with_cases else []
            wrong += self.compare_lives(self.lives(), plain_lives)
            if kind is Scene:
                wrong += self.smcd_again()
            for host in self.scene.hosts:
                print(f"{self.name}: {self.beside}", {n: c for n, c in host.agent.decisions().items() if c})
            self.scene.stop()
            self.listen.channel.close()
            return wrong, self.beside, len(plain)

    def run(self):
        wrong, paths, cases = self.compare(Scene, self.neighbour.CASES)
        smcd = paths.get(("smcd", "none"), 0)
        least = len(streams.USES) + (0 if self.only else cases * 4 // 5)
        if self.neighbour.PATH == "smcd" and smcd < least or self.neighbour.PATH == "tcp" and smcd:
            wrong.append(f"{smcd} connections were SMC-D: {paths}")
        more, paths, _ = self.compare(Pods, False)
        bypassed = bool(paths.get(("bypass", "none")))
        if self.neighbour.BYPASS not in (None, bypassed):
            more.append(f"bypassed: {bypassed}: {paths}")
        return wrong + [f"between pods: {line}" for line in more]

    def row(self, wrong):
        differs = self.neighbour.DIFFERS or ", ".join(self.neighbour.KNOWN)
        outcome = f"same but for {differs}" if differs else "same" if self.neighbour.CASES else "connections only"
        outcome += "; loses bytes" if self.neighbour.LOSES else ""
        title = self.neighbour.__doc__.splitlines()[0].rstrip(".")
        path = {"smcd": "SMC", "tcp": "plain TCP"}[self.neighbour.PATH]
        pods = {True: "bypass", False: "TCP", None: "either"}[self.neighbour.BYPASS]
        return f"| {title} | {path} | {pods} | {f'{len(wrong)} differ' if wrong else outcome} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", help="one case of socket_cases.py")
    options = parser.parse_args()
    chosen = options.names or names()
    if options.only and options.only not in {case.__name__ for case in socket_cases.CASES}:
        parser.error(f"no such case: {options.only}")
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
        rows.append(experiment.row(wrong))
    print("\n".join(["| neighbour | between nodes | between pods | outcome |", "|---|---|---|---|", *rows]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
