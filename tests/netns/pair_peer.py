# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""One end of a connection, which carries out commands: each is a line of JSON, answered with another.

    pair_peer.py serve IP PORT         accepts one connection
    pair_peer.py connect IP PORT

Its socket does not block; poll() waits. Every byte follows from a seed and its offset, and is checked by its reader.
"""
import errno
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time

PERIOD = 1048573  # a prime
FIONREAD = 0x541B
_once = random.Random(7).randbytes(PERIOD)
_pattern = _once * 2
TIMEOUT = 10


class End:
    def __init__(self, sock):
        self.sock = sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = self.received = 0  # offsets

    def ready(self, what, timeout=TIMEOUT):
        poll = select.poll()
        poll.register(self.sock, what)
        return bool(poll.poll(timeout * 1000))

    def piece(self, offset, count):
        start = offset % PERIOD
        return _pattern[start : start + min(count, PERIOD)]

    def check(self, data):
        if data != self.piece(self.received, len(data)):
            raise ValueError(f"wrong bytes at {self.received}")
        self.received += len(data)

    # --- commands
    def send(self, count, chunk=65536):
        end = self.sent + count
        while self.sent < end:
            try:
                self.sent += self.sock.send(self.piece(self.sent, min(chunk, end - self.sent)))
            except BlockingIOError:
                if not self.ready(select.POLLOUT):
                    raise TimeoutError("nobody reads")
        return count

    def receive(self, count, chunk=65536, flags=0):
        """Receives bytes; how many came, which is fewer if the stream ends."""
        end = self.received + count
        while self.received < end:
            try:
                data = self.sock.recv(min(chunk, end - self.received), flags)
            except BlockingIOError:
                if not self.ready(select.POLLIN):
                    raise TimeoutError(f"nothing comes, {end - self.received} are missing")
                continue
            if not data:
                break
            self.check(data)
        return count - (end - self.received)

    def both(self, out, come, seed, most=1 << 20, pause_ms=0):
        """Both ways at once, pieces of 1 B to `most`, now and then a pause."""
        dice = random.Random(seed)
        out, come = self.sent + out, self.received + come
        while self.sent < out or self.received < come:
            what = (select.POLLOUT if self.sent < out else 0) | (select.POLLIN if self.received < come else 0)
            if not self.ready(what):
                raise TimeoutError(f"stuck at {self.sent} of {out}, {self.received} of {come}")
            if self.received < come:
                try:
                    data = self.sock.recv(min(1 + int(most ** dice.random()), come - self.received))
                    if not data:
                        raise ValueError(f"an end at {self.received}")
                    self.check(data)
                except BlockingIOError:
                    pass
            if self.sent < out:
                try:
                    self.sent += self.sock.send(self.piece(self.sent, min(int(most ** dice.random()), out - self.sent)))
                except BlockingIOError:
                    pass
            if pause_ms and dice.random() < 0.01:
                time.sleep(dice.random() * pause_ms / 1000)
        return True

    def alternate(self, rounds, begins):
        """Each end sends when it has received what the other has sent, 1 to 3000 bytes."""
        dice = random.Random(0)  # the same at both ends
        for _ in range(rounds):
            for ours in (begins, not begins):
                size = dice.randrange(1, 3000)
                if (self.send(size) if ours else self.receive(size)) != size:
                    raise ValueError("an end")
        return rounds

    def stuff(self, most):
        """Sends until the socket takes no more."""
        before = self.sent
        while self.sent - before < most:
            try:
                self.sent += self.sock.send(self.piece(self.sent, 65536))
            except BlockingIOError:
                if not self.ready(select.POLLOUT, 0.3):
                    break
        return self.sent - before

    def waiting_receive(self, count, flags=0):
        self.sock.setblocking(True)
        self.sock.settimeout(None)
        try:
            data = self.sock.recv(count, flags)
            self.check(data)
        finally:
            self.sock.setblocking(False)
        return len(data)

    def signalled(self):
        """Is notified of data by SIGIO."""
        signal.signal(signal.SIGIO, lambda *_: None)
        fcntl.fcntl(self.sock, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self.sock, fcntl.F_SETFL, fcntl.fcntl(self.sock, fcntl.F_GETFL) | os.O_ASYNC)

    def polled(self, edges):
        """Waits by epoll from now on."""
        self.epoll = select.epoll()
        self.epoll.register(self.sock, select.EPOLLIN | (select.EPOLLET if edges else 0))

    def block(self):
        self.sock.setblocking(True)

    def look(self, count):
        return self.ready(select.POLLIN) and len(self.sock.recv(count, socket.MSG_PEEK))

    def splice(self, count):
        """Receives by splice() if that moves anything, else by recv()."""
        self.ready(select.POLLIN)
        from_pipe, to_pipe = os.pipe()
        try:
            moved = os.splice(self.sock.fileno(), to_pipe, count, flags=2)
            self.check(os.read(from_pipe, moved))
            return ["splice", moved]
        except OSError as failure:
            return [errno.errorcode[failure.errno], self.receive(count)]
        finally:
            os.close(from_pipe)
            os.close(to_pipe)

    def waiting(self):
        """The number of readable bytes, by FIONREAD."""
        self.ready(select.POLLIN)
        return struct.unpack("i", fcntl.ioctl(self.sock, FIONREAD, bytes(4)))[0]

    def urgent(self):
        return self.sock.send(b"!", socket.MSG_OOB)

    def hear_of_sending(self):
        """Whether a time stamp of sent data arrives."""
        return self.ready(0) and bool(self.sock.recvmsg(0, 1000, socket.MSG_ERRQUEUE)[1])  # POLLERR

    def hear_urgent(self):
        self.ready(select.POLLPRI)
        return self.sock.recv(1, socket.MSG_OOB).decode()

    def choose(self, level, option, value):
        self.sock.setsockopt(level, option, value)

    def disconnect(self):
        """connect() with AF_UNSPEC: the socket is what it was before, and its peer hears a reset."""
        import ctypes

        return ctypes.CDLL(None).connect(self.sock.fileno(), bytes(16), 16)

    def connect(self, ip, port):
        """Connects again, after disconnect()."""
        self.sock.settimeout(TIMEOUT)
        self.sock.connect((ip, port))
        self.sock.setblocking(False)
        self.sent = self.received = 0
        return 0

    def shut(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.close()


def main():
    how, ip, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    if how == "serve":
        listener = socket.create_server((ip, port), family=family, dualstack_ipv6=ip == "::")
        print("ready", flush=True)
        sock, _ = listener.accept()
        listener.close()
    else:
        sock = socket.create_connection((ip, port), TIMEOUT)
    end = End(sock)
    print("stands", flush=True)
    for line in sys.stdin:
        what, arguments = json.loads(line)
        try:
            answer = getattr(end, what)(**arguments)
        except (OSError, ValueError) as failure:
            number = getattr(failure, "errno", None)
            answer = {"failed": errno.errorcode[number] if number else str(failure)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
