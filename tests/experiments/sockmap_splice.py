# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Does a sockmap that joins two TCP connections push back? (docs/notebook.md, "The hairpin")

    sender -> [member 0 | redirect | member 1] -> reader that never reads

Prints how much the sender gets rid of within a few seconds, with a sockmap and with splice(2) through a pipe.
Needs root and a build (scripts/setup). Sends at most 512 MiB over loopback and stops by itself.
"""
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("SMC_BUILD", os.path.join(ROOT, "build"))
PINS = "/sys/fs/bpf/smc-experiment"
LIMIT = 512 << 20
SECONDS = 5
SYS_BPF, BPF_MAP_UPDATE_ELEM, BPF_OBJ_GET = 321, 2, 7  # x86_64
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = libc.syscall(SYS_BPF, command, buffer, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return result


def join(member0, member1):
    path = ctypes.create_string_buffer(f"{PINS}/maps/pair".encode())
    fd = bpf(BPF_OBJ_GET, struct.pack("QII", ctypes.addressof(path), 0, 0))
    for index, sock in ((1, member1), (0, member0)):
        key, value = ctypes.c_uint32(index), ctypes.c_uint64(sock.fileno())
        bpf(BPF_MAP_UPDATE_ELEM, struct.pack("I4xQQQ", fd, ctypes.addressof(key), ctypes.addressof(value), 0))
    return fd


def connection():
    listener = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    listener.close()
    return one, two


def push(sender):
    """How many bytes are sent before the sender blocks for good, or the time or the limit is over."""
    sender.setblocking(False)
    sent, block, end = 0, bytes(1 << 18), time.monotonic() + SECONDS
    while sent < LIMIT and time.monotonic() < end:
        try:
            sent += sender.send(block)
        except BlockingIOError:
            time.sleep(0.005)
    return sent


def splice_forever(source, sink):
    out, into = os.pipe()
    try:
        while True:
            held = os.splice(source.fileno(), into, 65536)
            while held:
                held -= os.splice(out, sink.fileno(), held)
    except OSError:
        pass


def kernel_memory():
    with open("/proc/meminfo") as file:
        values = {line.split(":")[0]: int(line.split()[1]) for line in file}
    return values["MemFree"]


def run(name, attach):
    sender, member0 = connection()
    member1, reader = connection()
    keep = attach(member0, member1)
    before = kernel_memory()
    sent = push(sender)
    print(
        f"{name:9} {sent / 2**20:8.1f} MiB accepted while the reader read nothing, "
        f"{(before - kernel_memory()) / 1024:8.1f} MiB less memory free"
    )
    for sock in (sender, member0, member1, reader):
        sock.close()
    return keep


def main():
    run("splice", lambda a, b: threading.Thread(target=splice_forever, args=(a, b), daemon=True).start())
    work = f"{BUILD}/experiment"
    os.makedirs(work, exist_ok=True)
    subprocess.run(
        [
            "clang-14",
            "-O2",
            "-g",
            "-target",
            "bpf",
            f"-I{BUILD}/bpf",
            "-c",
            f"{os.path.dirname(os.path.abspath(__file__))}/sockmap_splice.bpf.c",
            "-o",
            f"{work}/s.o",
        ],
        check=True,
    )
    shutil.rmtree(PINS, ignore_errors=True)
    try:
        os.makedirs(PINS)
        subprocess.run(
            ["bpftool", "prog", "loadall", f"{work}/s.o", f"{PINS}/progs", "pinmaps", f"{PINS}/maps"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        subprocess.run(
            [
                "bpftool",
                "prog",
                "attach",
                "pinned",
                f"{PINS}/progs/verdict",
                "stream_verdict",
                "pinned",
                f"{PINS}/maps/pair",
            ],
            check=True,
        )
        run("sockmap", join)
    finally:
        shutil.rmtree(PINS, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
