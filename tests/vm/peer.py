# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An ordinary TCP program; with --smc, the same over the kernel's own AF_SMC sockets; with --sndbuf=N and --rcvbuf=N,
with buffers that it has chosen (connections inherit those of a listener).

    peer.py serve PORT COUNT                  echoes COUNT connections, all at once
    peer.py client ADDRESS PORT BYTES [COUNT] sends BYTES, half-closes, expects them back; COUNT connections at once
    peer.py duplex serve|ADDRESS PORT BYTES   sends and receives BYTES at the same time, reading late and slowly
    peer.py churn ADDRESS PORT SECONDS N L    N threads connect over and over, L connections stay and send, all to an
                                              echo server; prints what came back right, and what did not
    peer.py until serve|ADDRESS PORT FILE     sends and receives until the file exists at one end, and prints how many
                                              bytes went each way, and for how long none came
    peer.py steps serve|ADDRESS PORT STEP...  one connection; what each step met is printed
        send:N  recv:N  shut  close  eof      eof expects the end of the stream
        abort                                 close with SO_LINGER 0
        error                                 expects recv() to fail and prints errno's name
        fill                                  sends until there is an error, and prints its name
        wait:FILE                             until the file exists
        sleep:N                               so many seconds
        oob                                   sends the next byte as urgent data
        inline                                urgent data in its place (SO_OOBINLINE)
        mark:N                                reads N bytes and expects the mark there
"""
import ctypes
import errno
import fcntl
import json
import os
import select
import socket
import struct
import sys
import threading
import time

AF_SMC, SMCPROTO_SMC, SMCPROTO_SMC6 = 43, 0, 1
SIOCATMARK = 0x8905
PATTERN = bytes(i * 7 % 251 for i in range(251 * 256))
NATIVE = "--smc" in sys.argv
ARGS = [a for a in sys.argv[1:] if not a.startswith("--")]
BUFFERS = {
    option: int(a.partition("=")[2])
    for a in sys.argv
    for name, option in (("--sndbuf=", socket.SO_SNDBUF), ("--rcvbuf=", socket.SO_RCVBUF))
    if a.startswith(name)
}
_libc = ctypes.CDLL(None, use_errno=True)


def pattern(at, n):
    at %= len(PATTERN)
    return (PATTERN * (n // len(PATTERN) + 2))[at : at + n]


def new_socket(family):
    new = plain_socket(family)
    for option, value in BUFFERS.items():
        new.setsockopt(socket.SOL_SOCKET, option, value)
    return new


def plain_socket(family):
    if not NATIVE:
        return socket.socket(family, socket.SOCK_STREAM)
    fd = _libc.socket(AF_SMC, socket.SOCK_STREAM, SMCPROTO_SMC6 if family == socket.AF_INET6 else SMCPROTO_SMC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "socket(AF_SMC)")
    return socket.socket(family, socket.SOCK_STREAM, 0, fileno=fd)


def listen(port):
    family = socket.AF_INET if NATIVE else socket.AF_INET6
    listener = new_socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not NATIVE:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", port))
    listener.listen(512)
    print("listening", flush=True)
    return listener


def connect(host, port):
    connection = new_socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    connection.connect((host, port))
    return connection


def one_connection(where, port):
    return listen(port).accept()[0] if where == "serve" else connect(where, port)


def serve(port, count):
    listener = listen(port)
    poll, connections, done = select.epoll(), {}, 0
    poll.register(listener, select.EPOLLIN)
    while done < count:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
                continue
            connection = connections[fd]
            try:
                data = connection.recv(65536)
                connection.sendall(data)
            except OSError as error:
                print(f"lost: {errno.errorcode[error.errno]}", flush=True)
                data = b""
            if not data:
                poll.unregister(fd)
                connections.pop(fd).close()
                done += 1


def exchange(connection, size):
    sent = received = 0
    while received < size:
        if sent < size:
            sent += connection.send(pattern(sent, min(65536, size - sent)))
            if sent == size:
                connection.shutdown(socket.SHUT_WR)
        if sent == size or sent - received > 16384:
            received += check(connection.recv(65536), received)
    if connection.recv(1):
        raise SystemExit("more came back than was sent")
    return received


def check(data, at):
    if not data:
        raise SystemExit(f"closed after {at} bytes")
    if data != pattern(at, len(data)):
        wrong = next(n for n, byte in enumerate(data) if byte != PATTERN[(at + n) % len(PATTERN)])
        there = (PATTERN * 2).find(data[wrong : wrong + 16])
        raise SystemExit(
            f"wrong bytes after byte {at}: {len(data)} came, from {wrong} on {data[wrong:wrong + 16].hex()}, "
            f"byte {there} of {len(PATTERN)}, where {(at + wrong) % len(PATTERN)} was due"
        )
    return len(data)


def client(host, port, size, count):
    connections = [connect(host, port) for _ in range(count)]
    print(f"{sum(exchange(c, size) for c in connections)} bytes", flush=True)


def duplex(connection, size):
    sent = 0

    def write():
        nonlocal sent
        while sent < size:
            sent += connection.send(pattern(sent, min(1 << 18, size - sent)))
        connection.shutdown(socket.SHUT_WR)

    writer = threading.Thread(target=write)
    writer.start()
    received, before = 0, -1
    while before < sent < size:  # Reads only when no more bytes go, so that each end waits for the other's reader.
        before = sent
        time.sleep(0.5)
    while received < size:
        received += check(connection.recv(1 << 18), received)
        if received % 50 == 0:
            time.sleep(0.01)
    writer.join()
    if connection.recv(1):
        raise SystemExit("more came than was sent")
    print(f"{received} bytes", flush=True)


def churn(host, port, seconds, threads, long_ones):
    end = time.monotonic() + seconds
    short, long, wrong = [0] * threads, [0] * long_ones, []

    def once(size, rounds=1):
        connection = connect(host, port)
        connection.settimeout(60)
        for n in range(rounds):
            connection.sendall(pattern(n * size, size))
            at = n * size
            while at < (n + 1) * size:
                at += check(connection.recv((n + 1) * size - at), at)
            if rounds > 1 and time.monotonic() > end:
                break
        connection.close()

    def guarded(what, counts, index, *arguments):
        while time.monotonic() < end:
            try:
                once(*arguments)
                counts[index] += 1
            except (OSError, SystemExit) as error:
                wrong.append(f"{what}: {error}")

    workers = [threading.Thread(target=guarded, args=("short", short, n, 2000)) for n in range(threads)]
    workers += [threading.Thread(target=guarded, args=("long", long, n, 20000, 1 << 30)) for n in range(long_ones)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({"short": sum(short), "long": sum(long), "wrong": wrong}), flush=True)


def until(connection, path):
    sent, ended = 0, threading.Event()

    def write():
        nonlocal sent
        while not ended.is_set() and not os.path.exists(path):
            sent += connection.send(pattern(sent, 8192))
        connection.shutdown(socket.SHUT_WR)

    writer = threading.Thread(target=write)
    writer.start()
    received, still, at = 0, 0.0, None
    while data := connection.recv(1 << 16):
        now = time.monotonic()
        still, at = max(still, now - (at or now)), now
        received += check(data, received)
    ended.set()
    writer.join()
    print(json.dumps({"sent": sent, "received": received, "still_ms": round(still * 1000)}), flush=True)


def step(connection, text, sent, received):
    name, _, argument = text.partition(":")
    if name == "send":
        connection.sendall(pattern(sent, int(argument)))
        return sent + int(argument), received
    if name == "recv":
        end = received + int(argument)
        while received < end:
            received += check(connection.recv(min(65536, end - received)), received)
    elif name == "shut":
        connection.shutdown(socket.SHUT_WR)
    elif name == "close":
        connection.close()
    elif name == "abort":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    elif name == "eof":
        data = connection.recv(1)
        print("eof" if not data else "data instead of eof", flush=True)
        return sent, received
    elif name == "error":
        while connection.recv(65536):
            pass
        print("eof instead of an error", flush=True)
        return sent, received
    elif name == "fill":
        while True:
            connection.sendall(PATTERN)
    elif name == "oob":
        connection.send(pattern(sent, 1), socket.MSG_OOB)
        return sent + 1, received
    elif name == "inline":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    elif name == "mark":
        end = received + int(argument)
        at = None
        while received < end or at is None:
            select.select([connection], [], [], 20)  # a recv() that waits at the mark would read across it
            if struct.unpack("i", fcntl.ioctl(connection, SIOCATMARK, bytes(4)))[0]:
                at = received
                break
            if received == end:
                break
            received += check(connection.recv(end - received), received)
        print(f"mark at {None if at is None else at - end + int(argument)}", flush=True)
    elif name == "sleep":
        time.sleep(float(argument))
    elif name == "wait":
        while not os.path.exists(argument):
            time.sleep(0.02)
    else:
        raise SystemExit(f"no step {text}")
    return sent, received


def steps(connection, script):
    sent = received = 0
    print("connected", flush=True)
    for text in script:
        try:
            sent, received = step(connection, text, sent, received)
        except OSError as error:
            print(f"{text} {errno.errorcode[error.errno]}", flush=True)
            if text not in ("error", "fill"):
                return
    print("done", flush=True)


mode, rest = ARGS[0], ARGS[1:]
if mode == "serve":
    serve(int(rest[0]), int(rest[1]))
elif mode == "client":
    client(rest[0], int(rest[1]), int(rest[2]), int((rest + ["1"])[3]))
elif mode == "churn":
    churn(rest[0], *map(int, rest[1:]))
elif mode == "until":
    until(one_connection(rest[0], int(rest[1])), rest[2])
elif mode == "duplex":
    duplex(one_connection(rest[0], int(rest[1])), int(rest[2]))
else:
    steps(one_connection(rest[0], int(rest[1])), rest[2:])
