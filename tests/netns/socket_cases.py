# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Uses of sockets by applications, recorded so that two runs can be compared line by line.

Each case gets a Bench with a client node and a listener of the server node, and returns the lines of what it
saw. Nothing in a line may depend on time, ports or buffer sizes. The same process holds both ends: the
listener is made in the server's namespace and cgroup and handed over, so every step is in lockstep.
"""
import array
import ctypes
import errno
import fcntl
import hashlib
import os
import select
import socket
import struct
import termios
import threading
import time

SIOCATMARK = 0x8905
SIOCOUTQ = 0x5411
MSG_ZEROCOPY = 0x4000000
SO_ZEROCOPY = 60
IP_BIND_ADDRESS_NO_PORT = 24
TCP_SYNCNT = 7
TIMEOUT = 10.0

CASES = []


def case(function):
    CASES.append(function)
    return function


def name_of(error):
    return errno.errorcode.get(error.errno, str(error.errno))


def attempt(function, *arguments):
    """The value, or the name of the error."""
    try:
        value = function(*arguments)
        return value if not isinstance(value, bytes) or len(value) <= 64 else f"{len(value)} bytes"
    except socket.timeout:
        return "timeout"
    except OSError as error:
        return name_of(error)


def until(condition, what):
    """Waits for asynchronous delivery; reports if it never comes."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            return f"never: {what}"
        time.sleep(0.002)
    return f"yes: {what}"


def pending(sock, request=termios.FIONREAD):
    value = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), request, value)
    return value[0]


def read_all(sock):
    digest, total = hashlib.sha256(), 0
    while True:
        data = sock.recv(1 << 16)
        if not data:
            return total, digest.hexdigest()[:16]
        digest.update(data)
        total += len(data)


def read_exactly(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def events(mask):
    names = [("IN", 1), ("PRI", 2), ("OUT", 4), ("ERR", 8), ("HUP", 16), ("RDHUP", 0x2000)]
    return "+".join(n for n, bit in names if mask & bit) or "none"


def pattern(size, seed=1):
    block = hashlib.sha256(bytes([seed])).digest() * 128
    return (block * (size // len(block) + 1))[:size]


class Bench:
    """One listener, and the sockets of one case."""

    def __init__(self, listener, address, family, unreachable):
        self.listener, self.address, self.family, self.unreachable = listener, address, family, unreachable
        self.open = []

    def client(self, family=None):
        sock = socket.socket(family or self.family, socket.SOCK_STREAM)
        self.open.append(sock)
        return sock

    def accept(self):
        sock, self.accepted_from = self.listener.accept()
        self.open.append(sock)
        return sock

    def pair(self):
        client = self.client()
        client.connect(self.address)
        return client, self.accept()

    def close(self):
        for sock in self.open:
            sock.close()


@case
def echo(b):
    c, s = b.pair()
    c.sendall(b"hello")
    yield s.recv(100)
    s.sendall(b"world")
    yield c.recv(100)
    c.shutdown(socket.SHUT_WR)
    yield s.recv(100)
    s.close()
    yield c.recv(100)


@case
def addresses(b):
    c, s = b.pair()
    yield "peer of client is the server's address", c.getpeername()[:2] == tuple(b.address[:2])
    yield "both agree on the client", c.getsockname()[:2] == s.getpeername()[:2]
    yield "accept() says the same", b.accepted_from[:2] == s.getpeername()[:2]
    yield "both agree on the server", s.getsockname()[:2] == c.getpeername()[:2]
    yield "not a loopback address", not c.getsockname()[0].startswith(("127.", "::1"))
    s.close()
    yield c.recv(1)
    yield "still known after the peer closed", c.getpeername()[:2] == tuple(b.address[:2])


@case
def server_speaks_first(b):
    c, s = b.pair()
    s.sendall(b"220 ready\r\n")
    yield c.recv(100)


@case
def data_and_end_before_accept(b):
    c = b.client()
    c.connect(b.address)
    c.sendall(b"early")
    c.close()
    s = b.accept()
    yield s.recv(100), s.recv(100)


@case
def nonblocking_connect(b):
    c = b.client()
    c.setblocking(False)
    yield attempt(c.connect, b.address)
    yield events(poll(c, select.POLLOUT))
    yield "SO_ERROR", c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    yield attempt(c.connect, b.address)
    s = b.accept()
    c.send(b"x")
    yield s.recv(1)


def poll(sock, mask, timeout=TIMEOUT):
    poller = select.poll()
    poller.register(sock, mask)
    ready = poller.poll(timeout * 1000)
    return ready[0][1] if ready else 0


@case
def connect_refused(b):
    b.listener.close()
    yield attempt(b.client().connect, b.address)
    c = b.client()
    c.setblocking(False)
    yield attempt(c.connect, b.address)
    yield events(poll(c, select.POLLOUT))
    yield "SO_ERROR", errno.errorcode[c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]
    yield "and again on the same socket", attempt(c.connect, b.address)


@case
def connect_unreachable_net(b):
    yield attempt(b.client().connect, b.unreachable["net"])


@case
def nonblocking_connect_without_route(b):
    c = b.client()
    c.setblocking(False)
    first = attempt(c.connect, b.unreachable["net"])
    poll(c, select.POLLOUT)
    yield first, c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


@case
def connect_unreachable_host(b):
    yield attempt(b.client().connect, b.unreachable["host"])


@case
def connect_prohibited(b):
    yield attempt(b.client().connect, b.unreachable["prohibited"])


@case
def connect_timeout(b):
    c = b.client()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300000))
    yield "SO_SNDTIMEO", attempt(c.connect, b.unreachable["silent"])
    c = b.client()
    c.setsockopt(socket.IPPROTO_TCP, TCP_SYNCNT, 1)
    start = time.monotonic()
    yield "TCP_SYNCNT 1", attempt(c.connect, b.unreachable["silent"])
    yield "after 2 to 5 s", 2 < time.monotonic() - start < 5


@case
def close_while_connecting(b):
    c = b.client()
    c.setblocking(False)
    yield attempt(c.connect, b.unreachable["silent"])
    c.close()
    c, s = b.pair()
    c.sendall(b"next")
    yield s.recv(10)


@case
def reconnect_after_refused(b):
    c = b.client()
    refused = (b.address[0], 1) + tuple(b.address[2:])
    yield attempt(c.connect, refused)
    yield attempt(c.connect, b.address)
    s = b.accept()
    c.sendall(b"x")
    yield s.recv(1), c.getpeername()[1] == b.address[1]


@case
def disconnect_and_reconnect(b):
    c, s = b.pair()
    libc = ctypes.CDLL(None, use_errno=True)
    unspec = struct.pack("H14x", socket.AF_UNSPEC)
    yield "AF_UNSPEC", libc.connect(c.fileno(), unspec, len(unspec))
    yield attempt(s.recv, 1)
    yield attempt(c.connect, b.address)
    s = b.accept()
    c.sendall(b"again")
    yield s.recv(10)
    yield "peer", c.getpeername()[:2] == tuple(b.address[:2])


@case
def bind_address_only(b):
    own = b.unreachable["own"]
    c = b.client()
    c.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    c.bind((own, 0) + tuple(b.address[2:]))
    c.connect(b.address)
    s = b.accept()
    yield "source", c.getsockname()[0] == own, s.getpeername()[:2] == c.getsockname()[:2]
    c.sendall(b"x")
    yield s.recv(1)


@case
def bind_port(b):
    c = b.client()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.bind((b.unreachable["own"], 0) + tuple(b.address[2:]))
    port = c.getsockname()[1]
    c.connect(b.address)
    s = b.accept()
    yield "the port that was chosen", s.getpeername()[1] == port, c.getsockname()[1] == port


@case
def receive_timeout(b):
    c, s = b.pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))
    yield attempt(c.recv, 1)
    s.sendall(b"x")
    poll(c, select.POLLIN)  # on a busy machine this may come later
    yield attempt(c.recv, 1)


@case
def dontwait_and_zero(b):
    c, s = b.pair()
    yield attempt(c.recv, 1, socket.MSG_DONTWAIT)
    c.setblocking(False)
    yield attempt(c.recv, 0), attempt(c.recv, 5)
    s.sendall(b"x")
    yield until(lambda: poll(c, select.POLLIN, 0), "readable"), c.recv(0), c.recv(5)


@case
def peek(b):
    c, s = b.pair()
    c.sendall(b"0123456789")
    until(lambda: pending(s) == 10, "10 bytes")
    yield s.recv(4, socket.MSG_PEEK), s.recv(20, socket.MSG_PEEK), s.recv(3), s.recv(20, socket.MSG_PEEK)
    yield s.recv(20)


@case
def waitall(b):
    c, s = b.pair()
    sender = threading.Thread(target=lambda: [c.sendall(b"x" * 10) or time.sleep(0.01) for _ in range(10)])
    sender.start()
    yield len(s.recv(100, socket.MSG_WAITALL))
    sender.join()
    c.sendall(b"y" * 30)
    c.shutdown(socket.SHUT_WR)
    yield len(s.recv(100, socket.MSG_WAITALL)), s.recv(1)


@case
def low_water_mark(b):
    c, s = b.pair()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10)
    c.sendall(b"12345")
    until(lambda: pending(s) == 5, "5 bytes")
    yield "below", events(poll(s, select.POLLIN, 0.05))
    c.sendall(b"67890")
    yield "reached", events(poll(s, select.POLLIN)), s.recv(100)


@case
def fionread(b):
    c, s = b.pair()
    yield pending(s)
    c.sendall(b"x" * 1234)
    yield until(lambda: pending(s) == 1234, "1234")
    s.recv(1000)
    yield pending(s)
    yield until(lambda: pending(c, SIOCOUTQ) == 0, "send queue empty")


@case
def truncate(b):
    c, s = b.pair()
    c.sendall(b"0123456789")
    until(lambda: pending(s) == 10, "10 bytes")
    yield "MSG_TRUNC discards", s.recv_into(bytearray(4), 4, socket.MSG_TRUNC), s.recv(100)


@case
def urgent_data(b):
    c, s = b.pair()
    c.sendall(b"before")
    c.send(b"ab!", socket.MSG_OOB)
    c.sendall(b"after")
    yield events(poll(s, select.POLLPRI) & 2)
    until(lambda: pending(s) >= 8, "bytes before the mark")
    yield "at mark", pending(s, SIOCATMARK), s.recv(100)
    yield "at mark", pending(s, SIOCATMARK), attempt(s.recv, 1, socket.MSG_OOB), attempt(s.recv, 1, socket.MSG_OOB)
    yield read_exactly(s, 5), "at mark", pending(s, SIOCATMARK)
    yield "none left", attempt(s.recv, 1, socket.MSG_OOB)


@case
def urgent_inline(b):
    c, s = b.pair()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    c.sendall(b"before")
    c.send(b"!", socket.MSG_OOB)
    c.sendall(b"after")
    poll(s, select.POLLPRI)
    yield read_exactly(s, 6), "at mark", pending(s, SIOCATMARK), read_exactly(s, 6)


@case
def urgent_twice_and_back(b):
    c, s = b.pair()
    for sender, receiver in ((c, s), (s, c)):
        for byte in (b"1", b"2"):
            sender.send(byte, socket.MSG_OOB)
            poll(receiver, select.POLLPRI)
            yield attempt(receiver.recv, 1, socket.MSG_OOB)
            sender.sendall(b"n")
            yield receiver.recv(1)


@case
def half_close_client_first(b):
    c, s = b.pair()
    c.sendall(pattern(100_000))
    c.shutdown(socket.SHUT_WR)
    yield attempt(c.send, b"x")
    yield read_all(s)
    s.sendall(pattern(200_000, 2))
    s.close()
    yield read_all(c)


@case
def half_close_server_first(b):
    c, s = b.pair()
    s.sendall(pattern(100_000))
    s.shutdown(socket.SHUT_WR)
    yield read_all(c)
    yield events(poll(c, select.POLLIN | 0x2000 | select.POLLOUT))
    c.sendall(pattern(50_000))
    c.close()
    yield read_all(s)


@case
def half_close_both_in_flight(b):
    c, s = b.pair()
    results = {}

    def side(name, sock, seed):
        sender = threading.Thread(
            target=lambda: (sock.sendall(pattern(5_000_000, seed)), sock.shutdown(socket.SHUT_WR))
        )
        sender.start()
        results[name] = read_all(sock)
        sender.join()

    threads = [threading.Thread(target=side, args=a) for a in (("c", c, 3), ("s", s, 4))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    yield sorted(results.items())


@case
def shutdown_read(b):
    c, s = b.pair()
    c.shutdown(socket.SHUT_RD)
    yield c.recv(1)
    yield attempt(s.send, b"x")
    c.sendall(b"still writes")
    yield s.recv(100)


@case
def simultaneous_close(b):
    c, s = b.pair()
    c.sendall(b"1")
    s.sendall(b"2")
    c.shutdown(socket.SHUT_WR)
    s.shutdown(socket.SHUT_WR)
    yield read_all(c)[0], read_all(s)[0]


@case
def linger_zero(b):
    c, s = b.pair()
    c.sendall(b"x")
    yield s.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    yield attempt(s.recv, 1), attempt(s.send, b"y")


@case
def linger_zero_by_server(b):
    c, s = b.pair()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    yield attempt(c.recv, 1), attempt(c.recv, 1)


@case
def linger_zero_after_half_close(b):
    c, s = b.pair()
    c.shutdown(socket.SHUT_WR)
    yield s.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    yield until(lambda: attempt(s.send, b"y") in ("ECONNRESET", "EPIPE"), "the writer hears of it")


@case
def linger_with_a_time(b):
    c, s = b.pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
    c.sendall(b"x" * 10000)
    began = time.monotonic()
    c.close()
    yield "done in time", time.monotonic() - began < 4
    yield read_all(s)


@case
def linger_with_a_time_that_is_too_short(b):
    c, s = b.pair()
    c.setblocking(False)
    sent = 0
    while select.select([], [c], [], 0.3)[1]:
        sent += c.send(b"x" * 65536)
    c.setblocking(True)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
    began = time.monotonic()
    c.close()
    yield "given up in time", time.monotonic() - began < 4
    yield "all arrives", read_all(s)[0] == sent


@case
def close_with_unread_data(b):
    c, s = b.pair()
    c.sendall(b"unread")
    until(lambda: pending(s) == 6, "6 bytes")
    s.close()
    yield attempt(c.recv, 1)


@case
def write_after_peer_closed(b):
    c, s = b.pair()
    s.close()
    yield c.recv(1)
    yield attempt(c.send, b"one")
    yield until(lambda: attempt(c.send, b"more") in ("EPIPE", "ECONNRESET"), "an error")
    yield attempt(c.send, b"x")


@case
def blocked_reader_woken_by_end(b):
    c, s = b.pair()
    results = []
    reader = threading.Thread(target=lambda: results.append(attempt(s.recv, 1)))
    reader.start()
    time.sleep(0.05)
    c.close()
    reader.join(TIMEOUT)
    yield results


@case
def blocked_writer_woken_by_reset(b):
    c, s = b.pair()
    results = []
    writer = threading.Thread(target=lambda: results.append(attempt(c.sendall, bytes(64 << 20))))
    writer.start()
    time.sleep(0.2)
    s.close()
    writer.join(TIMEOUT)
    yield [r in ("ECONNRESET", "EPIPE") for r in results]


def epoll_of(sock, flags=0):
    poller = select.epoll()
    poller.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLPRI | flags)

    def next_events(timeout=TIMEOUT):
        ready = poller.poll(timeout)
        return events(ready[0][1]) if ready else "none"

    return next_events


@case
def epoll_level(b):
    c, s = b.pair()
    ready = epoll_of(s)
    yield ready(), ready()
    c.sendall(b"0123456789")
    yield until(lambda: "IN" in ready(), "IN"), ready()
    s.recv(4)
    yield ready()
    s.recv(6)
    yield ready()
    c.shutdown(socket.SHUT_WR)
    yield until(lambda: "RDHUP" in ready(), "RDHUP"), ready()
    s.shutdown(socket.SHUT_WR)
    yield until(lambda: "HUP" in ready().replace("RDHUP", ""), "HUP"), ready()


@case
def epoll_edge(b):
    c, s = b.pair()
    ready = epoll_of(s, select.EPOLLET)
    yield ready(), ready(0)
    c.sendall(b"0123456789")
    yield ready(), ready(0)
    s.recv(4)
    yield "partial read", ready(0)
    c.sendall(b"x")
    yield ready()
    s.recv(100)
    yield "drained", ready(0)
    c.shutdown(socket.SHUT_WR)
    yield ready(), ready(0)


@case
def poll_after_reset(b):
    c, s = b.pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    yield until(lambda: poll(s, 0, 0) & select.POLLERR, "ERR"), events(poll(s, select.POLLIN | select.POLLOUT | 0x2000))
    yield "SO_ERROR", errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


@case
def backpressure(b):
    c, s = b.pair()
    c.setblocking(False)
    data, sent = pattern(1 << 16), 0
    digest = hashlib.sha256()
    quiet = 0
    while quiet < 20:
        try:
            n = c.send(data)
            digest.update(data[:n])
            sent += n
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.01)
        if sent > 256 << 20:
            break
    yield "the sender is stopped below 64 MiB", sent < 64 << 20
    results = []
    reader = threading.Thread(target=lambda: results.append(read_all(s)))
    reader.start()
    c.setblocking(True)
    c.shutdown(socket.SHUT_WR)
    reader.join()
    yield "all arrived", results[0] == (sent, digest.hexdigest()[:16])


@case
def small_buffers(b):
    c, s = b.pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    writer = threading.Thread(target=lambda: (c.sendall(pattern(1_000_000, 5)), c.shutdown(socket.SHUT_WR)))
    writer.start()
    yield read_all(s)
    writer.join()


@case
def send_timeout(b):
    c, s = b.pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200000))
    yield attempt(lambda: [c.sendall(bytes(1 << 20)) for _ in range(256)] and "sent all")


@case
def duplex_with_checksums(b):
    c, s = b.pair()
    size = 32 << 20
    results = {}

    def write(sock, seed):
        data, at = pattern(size, seed), 0
        step = 1
        while at < size:
            at += sock.send(data[at : at + step])
            step = step * 7 % 200_003 + 1
        sock.shutdown(socket.SHUT_WR)

    def read(name, sock):
        results[name] = read_all(sock)

    threads = [
        threading.Thread(target=write, args=(c, 6)),
        threading.Thread(target=write, args=(s, 7)),
        threading.Thread(target=read, args=("c", c)),
        threading.Thread(target=read, args=("s", s)),
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    yield sorted(results.items())


@case
def scatter_gather(b):
    c, s = b.pair()
    yield c.sendmsg([b"one", b"", b"two", b"three"])
    first, second = bytearray(4), bytearray(20)
    until(lambda: pending(s) == 11, "11 bytes")
    yield s.recvmsg_into([first, second])[0], bytes(first), bytes(second[:7])


@case
def more_and_cork(b):
    c, s = b.pair()
    c.send(b"a", socket.MSG_MORE)
    c.send(b"b")
    yield read_exactly(s, 2)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    c.send(b"c")
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    yield s.recv(10)


@case
def sendfile(b):
    c, s = b.pair()
    with open("/proc/self/exe", "rb") as source:
        size = min(os.fstat(source.fileno()).st_size, 4 << 20)
        expected = hashlib.sha256(source.read(size)).hexdigest()[:16]

        def send():
            at = 0
            while at < size:
                at += os.sendfile(c.fileno(), source.fileno(), at, size - at)
            c.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        yield "same", read_all(s) == (size, expected)
        sender.join()


@case
def splice_both_ways(b):
    c, s = b.pair()
    out, into = os.pipe()
    os.write(into, b"spliced")
    yield os.splice(out, c.fileno(), 7)
    until(lambda: pending(s) == 7, "7 bytes")
    yield os.splice(s.fileno(), into, 100), os.read(out, 100)
    c.close()
    yield "end", os.splice(s.fileno(), into, 100)
    os.close(out)
    os.close(into)


@case
def zerocopy(b):
    c, s = b.pair()
    c.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    yield c.send(bytes(100_000), MSG_ZEROCOPY) > 0
    s.recv(1)
    yield until(lambda: poll(c, 0, 0) & select.POLLERR, "completion")
    message = c.recvmsg(0, 256, socket.MSG_ERRQUEUE)
    yield "origin, range", [struct.unpack("IBBBBII", d[:16])[2] for _, _, d in message[1]], [
        struct.unpack("IBBBBII", d[:16])[5:] for _, _, d in message[1]
    ]


@case
def fork_and_use(b):
    c, s = b.pair()
    pid = os.fork()
    if pid == 0:
        c.sendall(b"from the child")
        os._exit(0)
    os.waitpid(pid, 0)
    c.sendall(b", from the parent")
    yield read_exactly(s, 31)
    c.close()
    yield s.recv(1)


@case
def passed_descriptor(b):
    c, s = b.pair()
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [c.fileno()])
    copy = socket.socket(fileno=socket.recv_fds(right, 1, 1)[1][0])
    c.close()
    copy.sendall(b"by the other name")
    yield s.recv(100), copy.getpeername()[:2] == tuple(b.address[:2])
    s.sendall(b"back")
    yield copy.recv(10)
    copy.close()
    left.close()
    right.close()
    yield s.recv(1)


@case
def dup_keeps_open(b):
    c, s = b.pair()
    copy = c.dup()
    c.close()
    copy.sendall(b"x")
    yield s.recv(1)
    copy.close()
    yield s.recv(1)


@case
def options_stick(b):
    c, s = b.pair()
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 7),
        (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
    ):
        c.setsockopt(level, option, value)
        yield c.getsockopt(level, option)
    yield "SO_TYPE", c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE), "SO_ERROR", c.getsockopt(
        socket.SOL_SOCKET, socket.SO_ERROR
    )
    yield "TCP_INFO state", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    yield "TCP_MAXSEG", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) < 2000


@case
def fast_open(b):
    c = b.client()
    yield attempt(c.sendto, b"with the SYN", 0x20000000, b.address)
    s = b.accept()
    yield s.recv(100)


@case
def listener_reopened_while_connected(b):
    c, s = b.pair()
    family, address = b.listener.family, b.listener.getsockname()
    b.listener.close()
    again = b.unreachable["listen"](family, address)
    c.sendall(b"old")
    yield s.recv(10)
    c2 = b.client()
    c2.connect(b.address)
    b.listener = again
    s2 = b.accept()
    c2.sendall(b"new")
    yield s2.recv(10)
