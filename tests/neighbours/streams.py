# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections that live while a neighbour comes and goes. Each byte is compared."""
import hashlib
import os
import select
import socket
import threading

NOISE = hashlib.shake_256(b"noise").digest(1 << 20)
PIECES = (1, 64, 1448, 4096, 100_001, 400_000)
LIMIT = 30  # seconds for one exchange


def sending(sock, data, errors):
    """A thread that sends; what it fails with is in `errors`."""

    def send():
        try:
            sock.sendall(data)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def receive(sock, size):
    data = bytearray()
    while len(data) < size:
        more = sock.recv(min(1 << 16, size - len(data)))
        if not more:
            raise OSError(f"the end, {size - len(data)} bytes early")
        data += more
    return bytes(data)


def require(right, what):
    if not right:
        raise OSError(what)


def ask_and_answer(client, server, number):
    """A request and its answer, of sizes that change."""
    size = PIECES[number % len(PIECES)]
    for sender, receiver in ((client, server), (server, client)):
        errors = []
        writer = sending(sender, NOISE[:size], errors)
        data = receive(receiver, size)
        writer.join()
        require(data == NOISE[:size] and not errors, f"other bytes {errors}")


def small(client, server, number):
    """A byte there and back, read when poll() says so."""
    for sender, receiver in ((client, server), (server, client)):
        sender.send(bytes([number & 255]))
        require(select.select([receiver], [], [], LIMIT)[0], "poll() does not return")
        require(receiver.recv(100, socket.MSG_DONTWAIT) == bytes([number & 255]), "another byte")


def both_ways(client, server, number):
    """300 kB in both directions at the same time."""
    offset = number * 1000 % 500_000
    data = {client: NOISE[offset:][:300_000], server: NOISE[offset + 1 :][:300_000]}
    errors = []
    writers = [sending(sock, data[sock], errors) for sock in data]
    got = receive(client, 300_000), receive(server, 300_000)
    for writer in writers:
        writer.join()
    require(got == (data[server], data[client]) and not errors, f"other bytes {errors}")


USES = (ask_and_answer, small, both_ways)


def run(connect, progress, phase, stop):
    """Uses connections until told to stop. `progress[i]` counts the exchanges of USES[i], and is -1 after an error;
    returns [(phase, error), ...]."""
    errors, parent = [], os.getppid()

    def use(index, function):
        try:
            client, server = connect()
            for sock in (client, server):
                sock.settimeout(LIMIT)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not stop.is_set() and os.getppid() == parent:  # which may be killed
                function(client, server, progress[index])
                progress[index] += 1
            client.shutdown(socket.SHUT_WR)
            require(server.recv(1) == b"", "no end")
            client.close()
            server.close()
        except Exception as error:  # of the test itself, too
            errors.append((phase.value, f"{function.__name__}, exchange {progress[index]}: {error}"))
            progress[index] = -1

    threads = [threading.Thread(target=use, args=use_) for use_ in enumerate(USES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors
