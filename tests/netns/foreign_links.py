# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Attaches pinned programs in ways that bpftool of Debian 12 cannot. Each function returns a descriptor of the link;
closing it detaches the program."""
import ctypes
import os
import socket
import struct

BPF_SYSCALL = 321 if os.uname().machine == "x86_64" else 280
OBJ_GET, LINK_CREATE, SK_LOOKUP, TCX_EGRESS = 7, 28, 36, 47
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command, *words, form):
    attributes = ctypes.create_string_buffer(struct.pack(form, *words), 128)
    found = _libc.syscall(BPF_SYSCALL, command, attributes, 128)
    if found < 0:
        raise OSError(ctypes.get_errno(), "bpf()")
    return found


def _attach(pinned, target, place):
    path = ctypes.create_string_buffer(pinned.encode())
    program = _bpf(OBJ_GET, ctypes.addressof(path), 0, 0, form="QII")
    try:
        return _bpf(LINK_CREATE, program, target, place, 0, form="IIII")
    finally:
        os.close(program)


def to_netns(pinned, netns):
    """Attaches a sk_lookup program to the namespace."""
    space = os.open(f"/run/netns/{netns}", os.O_RDONLY)
    try:
        return _attach(pinned, space, SK_LOOKUP)
    finally:
        os.close(space)


def to_egress(pinned, device):
    """Attaches a tcx program after the existing ones, in the calling thread's network namespace."""
    return _attach(pinned, socket.if_nametoindex(device), TCX_EGRESS)
