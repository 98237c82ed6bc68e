# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An ordinary TCP program.

    tcp.py serve PORT COUNT                echoes COUNT connections, one after the other
    tcp.py client ADDRESS PORT BYTES [COUNT]   sends BYTES, half-closes, expects them back; COUNT connections, all open at once
    tcp.py flood ADDRESS PORT              sends until there is an error, and prints its name
"""
import errno
import select
import socket
import sys

PATTERN = bytes(i * 7 % 251 for i in range(251 * 256))


def listen(port):
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=512)
    print("listening", flush=True)
    return listener


def serve(port, count):
    """Echoes them all at once: a client may keep the first open while it opens the last."""
    listener = listen(port)
    poll, open_, done = select.epoll(), {}, 0
    poll.register(listener, select.EPOLLIN)
    while done < count:
        for fd, events in poll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                open_[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
                continue
            connection = open_[fd]
            try:
                data = connection.recv(65536)
                if data:
                    connection.sendall(data)
            except OSError as error:
                print(f"connection lost: {errno.errorcode[error.errno]}", flush=True)
                data = b""
            if not data:
                poll.unregister(fd)
                open_.pop(fd).close()
                done += 1


def exchange(connection, size):
    sent = received = 0
    while received < size:
        if sent < size:
            at = sent % len(PATTERN)
            sent += connection.send(PATTERN[at:at + min(65536, size - sent)])
        if sent == size:
            connection.shutdown(socket.SHUT_WR)
            sent += 1
        if sent > size or sent - received > 16384:
            data = connection.recv(65536)
            if not data:
                raise SystemExit(f"closed after {received} of {size} bytes")
            at = received % len(PATTERN)
            expected = (PATTERN * 3)[at:at + len(data)]
            if data != expected:
                raise SystemExit(f"wrong bytes behind byte {received}")
            received += len(data)
    if connection.recv(1):
        raise SystemExit("more came back than was sent")
    return received


def client(host, port, size, count):
    connections = [socket.create_connection((host, port), timeout=120) for _ in range(count)]
    print(f"{sum(exchange(c, size) for c in connections)} bytes")


def flood(host, port):
    connection = socket.create_connection((host, port))
    print("connected", flush=True)
    try:
        while True:
            connection.sendall(PATTERN)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]), int(sys.argv[3]))
elif sys.argv[1] == "client":
    client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int((sys.argv + [1])[5]))
else:
    flood(sys.argv[2], int(sys.argv[3]))
