# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Holds the lock of a TCP socket: a setsockopt() waits for a page of memory that this program does not bring.

The socket listens, because a walk over all TCP sockets begins with those; with an address and port as arguments, it is
connected, and a byte has gone there and back. Prints "held" once the lock is held, or why it cannot hold one. Brings
the page when it reads a line, prints "free" (and what a receive then says, if it is connected), and ends at the next
line.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
import sys
import threading

USERFAULTFD = 323  # the system call's number on x86-64
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
API, MISSING = 0xAA, 1

libc = ctypes.CDLL(None, use_errno=True)
fault_fd = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
if fault_fd < 0:
    print(f"userfaultfd: {os.strerror(ctypes.get_errno())}", flush=True)
    sys.exit()
fcntl.ioctl(fault_fd, UFFDIO_API, bytearray(struct.pack("QQQ", API, 0, 0)))
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
missing = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
fcntl.ioctl(fault_fd, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", missing, mmap.PAGESIZE, MISSING, 0)))

# The kernel reads the first four bytes of struct linger before it takes the lock, and all eight afterwards.
pages[mmap.PAGESIZE - 4 : mmap.PAGESIZE] = bytes(4)
linger = ctypes.c_void_p(missing - 4)
if len(sys.argv) > 1:
    held = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    held.sendall(b"x")
    held.recv(1)
else:
    held = socket.create_server(("127.0.0.1", 0))
arguments = (held.fileno(), socket.SOL_SOCKET, socket.SO_LINGER, linger, 8)
call = threading.Thread(target=lambda: libc.setsockopt(*arguments), daemon=True)
call.start()
os.read(fault_fd, 32)  # returns when the page is missed
print("held", flush=True)
sys.stdin.readline()
os.close(fault_fd)  # the page is empty from here on
call.join()
print("free", flush=True)
if len(sys.argv) > 1:
    try:
        print(held.recv(1), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
sys.stdin.readline()
