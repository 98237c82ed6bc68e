# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""In a machine: two pods whose connection is bypassed, and whose programs then change their habits. Prints each answer.

    bypass_story.py prepare                 two namespaces, and a cgroup for each habit
    bypass_story.py tell SMCCTL PEER        with an agent: {habit: [answer of each step, ...]} as JSON
"""
import json
import os
import subprocess
import sys
import time

CGROUPS = "/sys/fs/cgroup"
ONE, TWO = "10.78.0.1", "10.78.0.2"
STEPS = {
    # end and command, after a send of 10 bytes by the client
    "none": [("server", "receive", {"count": 10})],
    "splice": [
        ("server", "splice", {"count": 10}),
        ("client", "send", {"count": 10}),
        ("server", "splice", {"count": 10}),
    ],
    "inq": [("server", "waiting", {}), ("server", "receive", {"count": 10})],
    "urgent": [
        ("server", "receive", {"count": 10}),
        ("client", "urgent", {}),
        ("server", "hear_urgent", {}),
        ("client", "send", {"count": 10}),
        ("server", "receive", {"count": 10}),
    ],
    "waits": [
        ("server", "waiting_receive", {"count": 10}),
        ("client", "send", {"count": 10}),
        ("server", "receive", {"count": 10}),
    ],
}


def prepare():
    for name in ("one", "two"):
        subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run("ip link add v1 netns one type veth peer name v1 netns two".split(), check=True)
    for name, ip in (("one", ONE), ("two", TWO)):
        for words in (f"addr add {ip}/24 dev v1", "link set v1 up", "link set lo up"):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        # each habit has a program of its own: a habit of one socket counts for all sockets of its program
        for habit in STEPS:
            os.makedirs(f"{CGROUPS}/{name}/{habit}")
        nothing = {way: subprocess.DEVNULL for way in ("stdin", "stdout", "stderr")}
        subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", "sleep", "600"], **nothing)


class Story:
    def __init__(self, smcctl, peer, habit, port):
        self.smcctl, self.said = smcctl, []
        self.ends = {"server": self.start(peer, "two", habit, "serve", TWO, port)}
        assert self.hear("server") == "ready"
        self.ends["client"] = self.start(peer, "one", habit, "connect", TWO, port)
        assert self.hear("server") == self.hear("client") == "stands"
        for _ in range(40):
            for one, other in (("client", "server"), ("server", "client")):
                self.ask(one, "send", count=64)
                self.ask(other, "receive", count=64)
        end = time.monotonic() + 60
        while self.bypassed() != 2:
            if time.monotonic() > end:
                raise TimeoutError(f"{habit}: it is not bypassed")
            time.sleep(0.1)

    def start(self, peer, space, habit, *arguments):
        join = f'echo $$ >{CGROUPS}/{space}/{habit}/cgroup.procs; exec nsenter --net=/run/netns/{space} "$@"'
        command = ["sh", "-ec", join, "sh", sys.executable, "-B", peer, *map(str, arguments)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self, end):
        return self.ends[end].stdout.readline().strip()

    def ask(self, end, what, **arguments):
        print(json.dumps([what, arguments]), file=self.ends[end].stdin, flush=True)
        return json.loads(self.hear(end))

    def bypassed(self):
        done = subprocess.run([self.smcctl, "connections", "--json"], stdout=subprocess.PIPE, check=True)
        return sum(connection["path"] == "bypass" for connection in json.loads(done.stdout))

    def end(self):
        for process in self.ends.values():
            process.kill()
            process.wait()
        while self.bypassed():
            time.sleep(0.1)


def tell(smcctl, peer):
    answers = {}
    for port, (habit, steps) in enumerate(STEPS.items(), start=5000):
        story = Story(smcctl, peer, habit, port)
        story.ask("client", "send", count=10)
        answers[habit] = [story.ask(end, what, **arguments) for end, what, arguments in steps]
        story.end()
    print(json.dumps(answers))


if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else tell(*sys.argv[2:])
