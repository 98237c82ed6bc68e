# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A native SMC program: the kernel's own AF_SMC sockets, as a peer that nobody here wrote.

    af_smc.py serve PORT COUNT           echoes COUNT connections, one after the other
    af_smc.py client ADDRESS PORT BYTES  sends BYTES, half-closes, expects them back
"""
import ctypes
import ipaddress
import os
import socket
import struct
import sys

AF_SMC, SMCPROTO_SMC, SMCPROTO_SMC6 = 43, 0, 1
_libc = ctypes.CDLL(None, use_errno=True)


def check(code):
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return code


def address(host, port):
    ip = ipaddress.ip_address(host)
    if ip.version == 4:
        return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), ip.packed)
    return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(port), 0, ip.packed, 0)


def smc_socket(host):
    v6 = ipaddress.ip_address(host).version == 6
    return check(_libc.socket(AF_SMC, socket.SOCK_STREAM, SMCPROTO_SMC6 if v6 else SMCPROTO_SMC))


def serve(port, count):
    listener = smc_socket("0.0.0.0")
    one = ctypes.c_int(1)
    check(_libc.setsockopt(listener, socket.SOL_SOCKET, socket.SO_REUSEADDR, ctypes.byref(one), 4))
    where = address("0.0.0.0", port)
    check(_libc.bind(listener, where, len(where)))
    check(_libc.listen(listener, 64))
    print("listening", flush=True)
    for _ in range(count):
        fd = check(_libc.accept(listener, None, None))
        while data := os.read(fd, 65536):
            while data:
                data = data[os.write(fd, data):]
        os.close(fd)


def client(host, port, size):
    fd = smc_socket(host)
    where = address(host, port)
    check(_libc.connect(fd, where, len(where)))
    payload = bytes(i * 7 % 251 for i in range(min(size, 4096)))
    sent = received = 0
    while received < size:
        if sent < size:
            sent += os.write(fd, payload[sent % 4096:][:size - sent])
        if sent == size or sent - received > 16384:
            data = os.read(fd, 65536)
            if not data:
                raise SystemExit(f"closed after {received} of {size} bytes")
            for i, byte in enumerate(data):
                if byte != payload[(received + i) % 4096]:
                    raise SystemExit(f"byte {received + i} is wrong")
            received += len(data)
    check(_libc.shutdown(fd, socket.SHUT_WR))
    if os.read(fd, 1):
        raise SystemExit("more came back than was sent")
    os.close(fd)
    print(f"{received} bytes")


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]), int(sys.argv[3]))
else:
    client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
