# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Gigabytes on every path: is each byte right, and on the path that it should be on?

    SMC_SOAK_BYTES   each way of each path, 10 GB if not said
    SMC_SOAK_PATHS   some of them only, as in "smcd bypass"

Half of the bytes go while everything is on one processor, half with a node on each. Of each half most are a stream both
ways at once, in pieces of 1 byte to 1 MiB and with pauses, and the others small messages, each answered by the next. A
connection of the bypass has messages alone: a stream is left to TCP.
"""
import json
import os
import subprocess
import time

from benchmarks import namespaces
from benchmarks.cases import OURS
from lab.nodes import Lab

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "netns", "pair_peer.py")
SCENES = {
    "plain": namespaces.Asked,
    "tuned": namespaces.Tuned,
    "lo": namespaces.OverLo,
    "bypass": namespaces.Bypass,
    "smcd": namespaces.SmcD,
    "ivshmem": namespaces.IvshmemFile,
}
PORT = 5000
MESSAGE = 1500  # the average size that pair_peer.py draws, in bytes
MESSAGES = 0.05  # the share of bytes in messages
CORES = ("one core", "a core each")


class End:
    """A program of pair_peer.py."""

    def __init__(self, node, processor, how, ip):
        command = ["taskset", "-c", processor, "/usr/bin/python3", "-B", PEER, how, ip, PORT]
        self.process = node.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self):
        return self.process.stdout.readline().strip()

    def expect(self, line):
        if (said := self.hear()) != line:
            raise RuntimeError(f"wanted {line!r}, heard {said!r}")

    def tell(self, what, **arguments):
        self.process.stdin.write(json.dumps([what, arguments]) + "\n")
        self.process.stdin.flush()

    def leave(self):
        self.process.stdin.close()
        if self.process.wait(60) != 0:
            raise RuntimeError(f"a program ended with {self.process.returncode}")


class Pair:
    def __init__(self, scene, cores):
        client, server, ip, _, _ = scene.ways()[OURS]
        processors = namespaces.PROCESSORS[cores]
        self.server = End(server, processors[1], "serve", "::")
        self.server.expect("ready")
        self.client = End(client, processors[0], "connect", ip)
        self.ends = self.client, self.server
        for end in self.ends:
            end.expect("stands")

    def answers(self, wanted):
        for end in self.ends:
            if (said := json.loads(end.hear())) != wanted:
                raise RuntimeError(f"wanted {wanted}, heard {said}")

    def stream(self, count, seed):
        for number, end in enumerate(self.ends):
            end.tell("both", out=count, come=count, seed=2 * seed + number, pause_ms=2)
        self.answers(True)

    def messages(self, rounds):
        for end in self.ends:
            end.tell("alternate", rounds=rounds, begins=end is self.client)
        self.answers(rounds)

    def leave(self):
        for end in self.ends:
            end.leave()


def past_tcp(scene):
    """Bytes that the client's end has sent on the expected path; None: that path is plain TCP."""
    if scene.path in ("plain", "tuned"):
        return None
    shown = [c for c in scene.client.agent.connections() if c["role"] == "client" and c["server"].endswith(f":{PORT}")]
    if len(shown) != 1:
        raise RuntimeError(f"one connection was wanted: {shown}")
    return shown[0]["redirected_bytes" if scene.path == "bypass" else "bytes_sent"]


def run(scene, cores, count):
    scene.pin(cores)
    pair = Pair(scene, cores)
    share = 1 if scene.path == "bypass" else MESSAGES
    began = time.monotonic()
    rounds = max(int(count * share / MESSAGE), 100)
    pair.messages(rounds)
    if share < 1:
        pair.stream(int(count * (1 - share)), CORES.index(cores))
    took = time.monotonic() - began
    went = past_tcp(scene)
    pair.leave()
    # A connection must prove fit before it is bypassed, and then one message in ten seconds goes by TCP.
    if went is not None and went < 0.8 * count:
        raise RuntimeError(f"{scene.path}: {went} of {count} bytes by it")
    print(
        f"{scene.path} ({scene.variant}), {cores}: {count} bytes each way, {rounds} messages, in {took:.1f} s",
        flush=True,
    )


def main():
    count = int(float(os.environ.get("SMC_SOAK_BYTES", "1e10")))
    for name in os.environ.get("SMC_SOAK_PATHS", " ".join(SCENES)).split():
        with Lab("paths") as lab:
            scene = SCENES[name](lab)
            scene.prepare()
            for cores in CORES:
                run(scene, cores, count // 2)
            scene.check()


if __name__ == "__main__":
    main()
