# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Reads options of another process's sockets, through descriptors of the same sockets."""
import contextlib
import ctypes
import os
import socket

PIDFD_GETFD = 438  # its number on every architecture; Python has no name for it


@contextlib.contextmanager
def process(pid):
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


def sockets_of(pid):
    """The open sockets of a process, one after the other, each as a new descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    with process(pid) as whose:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile, or no socket
                if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                    continue
                own = libc.syscall(PIDFD_GETFD, whose, int(fd), 0)
                if own < 0:
                    continue
                with socket.socket(fileno=own) as found:
                    yield found


def waits_of(pid, port):
    """The timeouts of each socket of this process that is connected to that port of another host: SO_KEEPALIVE,
    TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT."""
    found = []
    for taken in sockets_of(pid):
        with contextlib.suppress(OSError, IndexError):  # it is not connected, or no TCP
            if taken.getpeername()[1] == port:
                found.append([taken.getsockopt(*which) for which in ((1, 9), (6, 4), (6, 5), (6, 6), (6, 18))])
    return found
