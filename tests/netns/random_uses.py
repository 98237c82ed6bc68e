# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Random uses of the two sockets of a connection, on plain TCP and then on each way of the agent: the same calls in the
same order.

    random_uses.py [--runs N] [--seed S] [--calls N] [--ways smcd,joined]

Each run has a seed. After each call the test waits until both sockets are in the state in which TCP's were: what poll()
reports, how many bytes can be read, and whether the next one is urgent. Then the next call must return the same.
"""
import argparse
import array
import fcntl
import itertools
import multiprocessing
import random
import select
import socket
import struct
import sys
import termios
import time
import zlib

from fidelity import ListenerSource, enter, in_child
from lab.nodes import Lab
from socket_cases import SIOCATMARK, attempt, events, pattern
from ways import WAYS, Ways

SETTLED = 0.004  # seconds after which TCP, within one machine, has arrived
WITHIN = 5.0  # seconds for the same state over SMC
FIN_WAIT1, FIN_WAIT2, CLOSED = 4, 5, 7  # of TCP_INFO
MOST = 20_000  # bytes on their way, at most: no buffer fills


class Pair:
    """Both ends of a connection, and what was sent."""

    def __init__(self, client, server):
        self.ends = [client, server]
        self.sent, self.taken = [0, 0], [0, 0]
        self.deaf = [False, False]  # has shut down reading, or has closed
        for sock in self.ends:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def state_of(self, which):
        sock = self.ends[which]
        if sock is None:
            return None
        poll = select.poll()
        poll.register(sock, 0x203F)  # all events, RDHUP too
        found = poll.poll(0)
        number = array.array("i", [0])
        fcntl.ioctl(sock, termios.FIONREAD, number)
        readable = number[0]
        mark = attempt(fcntl.ioctl, sock, SIOCATMARK, number)
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        mask = found[0][1] if found else 0
        if state == CLOSED:
            mask &= ~select.POLLPRI  # perhaps of an urgent byte that was refused
        state = FIN_WAIT2 if state == FIN_WAIT1 else state  # until a delayed ACK
        return events(mask), readable, number[0] if mark == 0 else mark, state

    def state(self):
        return [self.state_of(which) for which in (0, 1)]


def send(pair, which, rnd):
    size = rnd.choice((1, 2, 10, 100, 1000, 5000))
    flags = rnd.choice((0, 0, 0, 0, socket.MSG_OOB))
    ahead = pair.sent[which] - pair.taken[1 - which]
    if ahead + size > MOST:
        size, flags = 1, 0
    if pair.deaf[1 - which]:
        flags = 0  # what FIONREAD counts after a refused urgent byte depends on when it was refused
    data = pattern(100_000, which)[pair.sent[which] % 50_000 :][:size]
    done = attempt(pair.ends[which].send, data, flags | socket.MSG_NOSIGNAL)
    if isinstance(done, int):
        pair.sent[which] += done
    return "send", size, int(flags), done


def receive(pair, which, rnd):
    size = rnd.choice((0, 1, 3, 50, 1000, 20_000))
    flags = rnd.choice((0, 0, 0, 0, socket.MSG_PEEK, socket.MSG_OOB, socket.MSG_TRUNC, socket.MSG_WAITALL))
    if flags == socket.MSG_OOB and rnd.random() < 0.3:
        flags |= socket.MSG_PEEK
    buffer = bytearray(size)
    done = (
        attempt(pair.ends[which].recv_into, buffer, size, flags) if size else attempt(pair.ends[which].recv, 0, flags)
    )
    if isinstance(done, int) and not flags & socket.MSG_PEEK:
        pair.taken[which] += done
    return "recv", size, int(flags), done, zlib.crc32(bytes(buffer[: done if isinstance(done, int) else 0]))


def shut_down(pair, which, rnd):
    how = rnd.choice((socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RD, socket.SHUT_RDWR))
    pair.deaf[which] |= how != socket.SHUT_WR
    return "shutdown", how, attempt(pair.ends[which].shutdown, how)


def close(pair, which, rnd):
    if rnd.random() < 0.3:
        pair.ends[which].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.ends[which].close()
    pair.ends[which] = None
    pair.deaf[which] = True
    return ("close",)


def choose(pair, which, rnd):
    level, option, value = rnd.choice(
        (
            (socket.SOL_SOCKET, socket.SO_OOBINLINE, rnd.randrange(2)),
            (socket.SOL_SOCKET, socket.SO_RCVLOWAT, rnd.choice((1, 10, 500))),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, rnd.randrange(2)),
        )
    )
    return "setsockopt", option, value, attempt(pair.ends[which].setsockopt, level, option, value)


def ask(pair, which, rnd):
    option = rnd.choice((socket.SO_ERROR, socket.SO_RCVLOWAT, socket.SO_OOBINLINE))
    return "getsockopt", option, attempt(pair.ends[which].getsockopt, socket.SOL_SOCKET, option)


def name(pair, which, rnd):
    return "getpeername", str(attempt(pair.ends[which].getpeername))[:3]


CALLS = [(send, 40), (receive, 40), (shut_down, 3), (close, 2), (choose, 6), (ask, 6), (name, 3)]


def play(pair, seed, calls, like=None):
    """Makes the calls of this seed. Returns [(call and result, state after it), ...]; `like`: what TCP did, which is
    waited for; ends at the first difference."""
    rnd = random.Random(seed)
    done = []
    for number in range(calls):
        which = rnd.randrange(2)
        if pair.ends[which] is None:
            which = 1 - which
        if pair.ends[which] is None:
            break
        function = rnd.choices([f for f, _ in CALLS], [weight for _, weight in CALLS])[0]
        call = (which, *function(pair, which, rnd))
        if like is None:
            time.sleep(SETTLED)
            state = pair.state()
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:  # until it stays the same
                time.sleep(SETTLED)
                if pair.state() == state:
                    break
                state = pair.state()
        else:
            deadline = time.monotonic() + WITHIN
            while (state := pair.state()) != like[number][1] and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(2 * SETTLED)  # what cannot be seen arrives, too
            state = pair.state()
        done.append((call, state))
        if like is not None and done[-1] != like[number]:
            break
    for sock in pair.ends:
        if sock:
            sock.close()
    return done


def run_seeds(listen, ways, first_port, seeds, calls, likes):
    enter(ways.client)
    outcomes = {}
    for number, seed in enumerate(seeds):
        pair = Pair(*ways.connect(listen, first_port + number, number))
        outcomes[seed] = play(pair, seed, calls, likes and likes[seed])
    return outcomes


def show(way, seed, ours, plain):
    at = len(ours) - 1
    print(f"--- {way}, seed {seed}, call {at}")
    for call in plain[:at]:
        print(f"      {call}")
    print(f"  tcp {plain[at]}\n  smc {ours[at]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each run has the next one")
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    multiprocessing.set_start_method("fork")
    seeds = range(options.seed, options.seed + options.runs)
    wrong = 0
    with Lab("random") as lab:
        ways = Ways(lab, fallback={"budget_ms": 10000})
        listen = ListenerSource(ways.server)
        ports = itertools.count(20000, options.runs)
        run = lambda likes: in_child(run_seeds, listen, ways, next(ports), seeds, options.calls, likes)
        plain = run(None)
        for way in options.ways.split(","):
            ways.start(way)
            ours = run(plain)
            ways.check(way, len(seeds))
            ways.stop()
            for seed in seeds:
                if ours[seed] != plain[seed]:
                    wrong += 1
                    show(way, seed, ours[seed], plain[seed])
        listen.channel.close()
    print(f"{len(seeds)} runs, {sum(map(len, plain.values()))} calls, {options.ways}: {wrong} runs differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
