# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Ends of connections, recorded so that two runs can be compared.

The ender sends something and ends the connection; the other side reads, at once or late, and writes. An outcome is a
list of what the other side saw: how much it could read, how reading ended, and what writing said.
"""
import itertools
import select
import socket
import struct
import subprocess
import threading
import time

from fidelity import enter
from socket_cases import attempt, pattern, pending, until

ENDERS = ("client", "server")
# "unread": with bytes of the peer that the ender has not read.
ENDS = ("close", "close, unread", "SO_LINGER 0", "killed", "killed, unread", "shutdown", "shutdown, killed, unread")
SIZES = {"nothing": 0, "little": 1000, "much": 900_000}  # "much": more than the other side's buffers hold
READERS = ("at once", "late", "late, had written")
# States of the connection when an agent ends.
STATES = ("open", "shutdown", "close")
AGENT_SIZES = {"nothing": 0, "little": 1000, "some": 300_000}  # "some": what a ring and a leg hold
MUCH = 1 << 20  # send buffer: no send() waits
LATE = 7.0  # seconds: longer than TIMES, and than tcp_fin_timeout
TIMES = {"smc": {"close_timeout_ms": 1000, "step_timeout_ms": 5000}, "fallback": {"budget_ms": 10000, "cache_s": 60}}


class Raw:
    """Bytes that attempt() shall not abbreviate."""

    def __init__(self, data):
        self.data = data


def wait_for(sock, event, seconds):
    """Waits until this event or an error has arrived."""
    poll = select.poll()
    poll.register(sock, event)
    poll.poll(seconds * 1000)


def read(sock, expected):
    got = bytearray()
    sock.settimeout(30)
    while True:
        piece = attempt(lambda: Raw(sock.recv(1 << 16)))
        if not isinstance(piece, Raw) or not piece.data:
            break
        got += piece.data
    assert expected.startswith(got), "wrong bytes"
    amount = "nothing" if not expected else "all" if len(got) == len(expected) else f"{len(got)} bytes"
    return [f"read {amount}", "end" if isinstance(piece, Raw) else piece]


def write(sock):
    """What send() says until it fails, each result once. A reset that is on its way may arrive first."""
    wait_for(sock, 0, 1)
    said = []
    deadline = time.monotonic() + 20
    sock.settimeout(5)
    while time.monotonic() < deadline and not (said and said[-1].startswith("E")):
        result = str(attempt(sock.send, b"x"))
        if result not in said:
            said.append(result)
        time.sleep(0.02)
    return "wrote " + " ".join(said)


def kill_with(sock):
    """Another process has the socket alone, and is killed."""
    process = subprocess.Popen(["sleep", "3600"], pass_fds=[sock.fileno()])
    sock.close()
    process.kill()
    process.wait()


def end(sock, how):
    if how.startswith("shutdown"):
        sock.shutdown(socket.SHUT_WR)
    if how == "SO_LINGER 0":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if "killed" in how:
        kill_with(sock)
    elif how != "shutdown":
        sock.close()


def outcome_of(ender, other, how, size, reader):
    sent = pattern(SIZES[size])
    ender.settimeout(20)
    ender.sendall(sent)
    if "unread" in how:
        other.sendall(b"unread")
        until(lambda: pending(ender) == 6, "6 bytes")
    end(ender, how)
    outcome = []
    if reader == "late, had written":
        wait_for(other, select.POLLRDHUP, 2)  # in vain where bytes wait in front of the end
        outcome.append(write(other))
    if reader != "at once":
        time.sleep(LATE)
    outcome += read(other, sent)
    if how == "shutdown":  # the other half
        answer = pattern(SIZES[size], 2)
        other.settimeout(20)
        other.sendall(answer)
        other.close()
        if reader != "at once":
            time.sleep(LATE)
        outcome += read(ender, answer)
        other = ender
    return outcome + [write(other)]


CASES = [
    case for case in itertools.product(ENDERS, ENDS, SIZES, READERS) if case[1:4:2] != ("shutdown", "late, had written")
]


def run(listen, ways, first_port, only):
    """In the client's node: all cases at the same time."""
    enter(ways.client)
    outcomes, threads = {}, []

    def one(case, ender, other):
        try:
            outcomes[case] = outcome_of(ender, other, *case[1:])
        except Exception as error:
            outcomes[case] = [f"{type(error).__name__}: {error}"]

    for number, case in enumerate(CASES):
        if only and only not in ": ".join(case):
            continue
        ends = ways.connect(listen, first_port + number, number, MUCH)
        threads.append(threading.Thread(target=one, args=(case, *(ends if case[0] == "client" else ends[::-1]))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return outcomes


def run_while_an_agent_ends(listen, ways, first_port, only, ending):
    """The same with connections that are open, or whose ender has ended, when an agent ends: once `ending` is told."""
    enter(ways.client)
    outcomes, waiting = {}, []
    for number, case in enumerate(itertools.product(ENDERS, STATES, AGENT_SIZES, ("at once", "late"))):
        if only and only not in ": ".join(case):
            continue
        ends = ways.connect(listen, first_port + number, number, MUCH)
        ender, other = ends if case[0] == "client" else ends[::-1]
        sent = pattern(AGENT_SIZES[case[2]])
        ender.settimeout(20)
        ender.sendall(sent)
        if case[1] != "open":
            end(ender, case[1])
        if case[2] == "some":
            until(lambda: pending(other) > 60_000, "a full buffer")
        else:
            until(lambda: pending(other) == len(sent), "all bytes")
            if case[1] != "open":
                wait_for(other, select.POLLRDHUP, 20)
        waiting.append((case, ender, other, sent))
    ending.send(sum(len(sent) for *_, sent in waiting))
    ending.recv()
    for late in (False, True):
        if late:
            time.sleep(LATE)
        batch = [one for one in waiting if (one[0][3] == "late") == late]
        for case, _, other, sent in batch:
            outcomes[case] = read(other, sent)
        for case, _, other, _ in batch:
            outcomes[case].append(write(other))
    return outcomes
