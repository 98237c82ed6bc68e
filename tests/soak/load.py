# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The load of the soak test: a server, and clients of one kind each.

    load.py serve                              answers every kind of client on port 5000, IPv4 and IPv6
    load.py KIND SEED DIRECTORY ADDRESS ...    a client, until DIRECTORY has a file "stop"; rests while it has "pause"

Every byte of a stream follows from the stream's seed and the byte's offset, and its reader checks it. The reader also
checks that a clean end comes after the last byte. Each fault is a line of JSON, {"kind", "role",
"port" (the client's), "began", "connected", "at", "what"}; the times are of the monotonic clock. A client ends with a
line of its totals.
"""
import collections
import errno
import fcntl
import json
import os
import random
import select
import socket
import struct
import sys
import threading
import time

PORT = 5000
TIMEOUT = 30.0  # seconds without a byte
SIOCATMARK = 0x8905
HEADER = struct.Struct("!BBQQQ")  # kind, variant, seed, bytes from the client, bytes from the server
PERIOD = 1048573  # of the pattern: a prime, so that no ring's size is a multiple of it
KINDS = ("short", "exchange", "bulk", "half", "reset", "urgent", "idle")
THREADS = {"short": 2, "exchange": 2, "idle": 8}
STUCK = "nothing for too long"
BROKEN = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)

_period = random.Random(254).randbytes(PERIOD)
_pattern = _period + _period[: 1 << 20]


class Wrong(Exception):
    """A fault that no disturbance explains."""


class Stream:
    """One direction of a connection, as its writer or its reader sees it."""

    def __init__(self, sock, seed):
        self.sock, self.seed, self.offset = sock, seed, 0

    def expected(self, count):
        start = (self.seed + self.offset) % PERIOD
        return _pattern[start : start + min(count, 1 << 20)]

    def check(self, data):
        if data != self.expected(len(data)):
            first = next(i for i, pair in enumerate(zip(data, self.expected(len(data)))) if pair[0] != pair[1])
            raise Wrong(f"wrong byte at {self.offset + first}, {len(data)} bytes read at {self.offset}")
        self.offset += len(data)

    def give(self, count, chunk=1 << 18, flags=0):
        while count > 0:
            data = self.expected(min(count, chunk))
            self.sock.sendall(data, flags)
            self.offset += len(data)
            count -= len(data)

    def take(self, count):
        while count > 0:
            data = self.sock.recv(min(count, 1 << 17))
            if not data:
                raise Wrong(f"clean end at {self.offset}, {count} bytes early")
            self.check(data)
            count -= len(data)

    def take_end(self):
        if self.sock.recv(1):
            raise Wrong(f"bytes after the end at {self.offset}")


def both_ways(out, into, give, take):
    """Writes and reads at once; each side ends its stream after the last byte."""
    sock, ended = out.sock, False
    sock.setblocking(False)
    poll = select.poll()
    while out.offset < give or not ended:
        poll.register(sock, (select.POLLOUT if out.offset < give else 0) | (0 if ended else select.POLLIN))
        found = poll.poll(TIMEOUT * 1000)
        if not found:
            raise TimeoutError(f"both ways at {out.offset} of {give} and {into.offset} of {take}")
        event = found[0][1]
        if not ended and event & ~select.POLLOUT:
            data = sock.recv(1 << 18)
            into.check(data)
            ended = not data
            if ended and into.offset < take:
                raise Wrong(f"clean end at {into.offset}, {take - into.offset} bytes early")
            if into.offset > take:
                raise Wrong(f"bytes after the end at {take}")
        if out.offset < give and event & ~select.POLLIN:
            out.offset += sock.send(out.expected(min(give - out.offset, 1 << 18)))
            if out.offset == give:
                sock.shutdown(socket.SHUT_WR)
    sock.settimeout(TIMEOUT)


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def expect_reset(read_or_write):
    try:
        read_or_write()
    except OSError as e:
        if e.errno not in BROKEN:
            raise
        return
    raise Wrong("no reset")


def size(rnd, bits):
    return int(2 ** rnd.uniform(0, bits))


class Talk:
    """A connection's conversation. Client and server run the same method, `mine` and `theirs` exchanged."""

    def __init__(self, sock, client, variant, seed, up, down):
        self.sock, self.client, self.variant, self.seed = sock, client, variant, seed
        self.mine, self.theirs = Stream(sock, seed), Stream(sock, seed + PERIOD // 2)
        self.give, self.take = up, down
        if not client:
            self.mine, self.theirs, self.give, self.take = self.theirs, self.mine, down, up

    def requests(self, sizes):
        for up, down in sizes:
            if self.client:
                self.mine.give(up)
                self.theirs.take(down)
            else:
                self.theirs.take(up)
                self.mine.give(down)

    def part(self, first):
        """The side that is first closes; the other sees the end."""
        if not first:
            self.theirs.take_end()
        self.sock.close()

    def short(self):
        self.requests([(1 + self.seed % 500, 1 + self.seed % 3000)])
        self.part(self.client == (self.variant == 0))

    def exchange(self):
        rnd = random.Random(self.seed)
        self.requests([(size(rnd, 18), size(rnd, 18)) for _ in range(rnd.randrange(1, 60))])
        self.part(self.client)

    def bulk(self):
        both_ways(self.mine, self.theirs, self.give, self.take)
        self.sock.close()

    def half(self):
        """One side sends everything and ends its stream; then the other does."""
        if self.client == (self.variant == 0):
            self.mine.give(self.give)
            self.sock.shutdown(socket.SHUT_WR)
            self.theirs.take(self.take)
            self.theirs.take_end()
        else:
            self.theirs.take(self.take)
            self.theirs.take_end()
            self.mine.give(self.give)
        self.sock.close()

    def reset(self):
        """Variants: bit 0, which side resets; bit 1, after writing or after reading; bit 2, with bytes unread."""
        if self.client:
            self.theirs.take(1)  # the server knows what is coming
        else:
            self.mine.give(1)
        breaks, writes = self.client == (self.variant & 1 == 0), bool(self.variant & 2)
        length = self.give if breaks else self.take
        if not breaks:
            return expect_reset((lambda: self.theirs.take(length + 1)) if writes else lambda: self.mine.give(1 << 62))
        if writes:
            self.mine.give(length)
        else:
            self.theirs.take(length)
        if writes or self.variant & 4:
            return reset(self.sock)
        self.sock.close()

    def urgent(self):
        """Each urgent byte is in its place in the stream, and marked."""
        rnd = random.Random(self.seed)
        for _ in range(rnd.randrange(1, 20)):
            before, behind = size(rnd, 15), size(rnd, 15)
            if self.client:
                self.mine.give(before)
                self.mine.give(1, flags=socket.MSG_OOB)
                self.mine.give(behind)
                self.theirs.take(1)
            else:
                self.theirs.take(before)
                self.sock.recv(1, socket.MSG_PEEK)  # the urgent byte is here
                if fcntl.ioctl(self.sock, SIOCATMARK, bytes(4)) == bytes(4):
                    raise Wrong(f"no urgent mark at {self.theirs.offset}")
                self.theirs.take(1 + behind)
                self.mine.give(1)
        self.part(self.client)

    def idle(self, wait=None):
        """The client's `wait` returns when it is time to continue. The server waits for bytes."""
        rnd = random.Random(self.seed)
        for exchange in range(2):
            if exchange == 1 and self.client:
                wait(self.sock)
            self.requests([(size(rnd, 20), size(rnd, 20))])
        self.part(self.client)


_lock = threading.Lock()


def tell(**what):
    with _lock:
        print(json.dumps(what), flush=True)


def attempt(sock, role, kind, began, talk):
    """True: all was right. Otherwise resets the connection, so that the other end does not take this for an end."""
    found = {"kind": kind}
    try:
        talk(found)
        return True
    except Wrong as e:
        what = str(e)
    except OSError as e:
        stuck = isinstance(e, TimeoutError) and e.errno is None  # this program's timeout, not TCP's
        what = STUCK if stuck else errno.errorcode.get(e.errno, str(e))
    finally:
        kind = found["kind"]
    port = sock.getsockname()[1] if role == "client" else found.get("port")
    reset(sock)
    step = found.get("step")
    what = f"{step}: {what}" if step else what
    tell(kind=kind, role=role, port=port, began=began, connected=found.get("connected"), at=time.monotonic(), what=what)
    return False


# --- the server -----------------------------------------------------------------------------------------------------


def answer(sock, port):
    began = time.monotonic()

    def talk(found):
        found["port"] = port
        sock.settimeout(TIMEOUT)
        head = b""
        while len(head) < HEADER.size:
            data = sock.recv(HEADER.size - len(head))
            if not data:
                raise Wrong(f"clean end after {len(head)} bytes of the header")
            head += data
        kind, *rest = HEADER.unpack(head)
        found["kind"] = KINDS[kind]
        if found["kind"] == "urgent":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        getattr(Talk(sock, False, *rest), found["kind"])()

    attempt(sock, "server", "header", began, talk)
    sock.close()


def serve():
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", PORT))
    listener.listen(1024)
    tell(ready=True)
    while True:
        sock, peer = listener.accept()
        threading.Thread(target=answer, args=(sock, peer[1]), daemon=True).start()


# --- a client -------------------------------------------------------------------------------------------------------


class Client:
    def __init__(self, kind, seed, directory, addresses):
        self.kind, self.directory, self.addresses = kind, directory, addresses
        self.rnd = random.Random(seed)
        self.totals = collections.Counter()
        self.longest = 0.0

    def add(self, name, count=1):
        with _lock:
            self.totals[name] += count

    def flag(self, name):
        return os.path.exists(f"{self.directory}/{name}")

    def resting(self):
        return self.flag("pause") or self.flag("stop")

    def wait(self, sock):
        """Waits some seconds, in which nothing may happen on the connection."""
        end = time.monotonic() + self.rnd.uniform(0, TIMEOUT - 10)
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while time.monotonic() < end and not self.resting():
            if poll.poll(200):
                raise Wrong("clean end" if not sock.recv(1) else "bytes of nobody")

    def sizes(self):
        if self.kind == "bulk":
            return size(self.rnd, 26), size(self.rnd, 26)
        return size(self.rnd, 20), size(self.rnd, 20)

    def once(self):
        address, variant, seed = self.rnd.choice(self.addresses), self.rnd.randrange(8), self.rnd.getrandbits(48)
        variant = variant if self.kind == "reset" else variant % 2
        up, down = self.sizes()
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.settimeout(TIMEOUT)
        began = time.monotonic()

        def talk(found):
            found["step"] = "connect"
            sock.connect((address, PORT))
            took = time.monotonic() - began
            self.longest = max(self.longest, took)
            self.add("slow connects", took > 1)
            del found["step"]
            found["connected"] = began + took
            sock.sendall(HEADER.pack(KINDS.index(self.kind), variant, seed, up, down))
            talk = Talk(sock, True, variant, seed, up, down)
            arguments = [self.wait] if self.kind == "idle" else []
            getattr(talk, self.kind)(*arguments)
            self.add("bytes", talk.mine.offset + talk.theirs.offset)

        self.add("transfers" if attempt(sock, "client", self.kind, began, talk) else "broken")
        sock.close()

    def many(self):
        while not self.flag("stop"):
            if self.flag("pause"):
                time.sleep(0.05)
            else:
                self.once()
                time.sleep(self.rnd.uniform(0, 0.02))

    def run(self):
        threads = [threading.Thread(target=self.many) for _ in range(THREADS.get(self.kind, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tell(totals=self.totals, kind=self.kind, longest_connect=self.longest)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    Client(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]).run()
