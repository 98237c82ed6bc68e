# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The server for `ivshmem-doorbell`: hands each machine the shared memory, and an eventfd of each other machine.

The protocol is QEMU's (docs/specs/ivshmem-spec.rst, "Interrupts"): numbers of 64 bits, some with a descriptor. Debian
does not package QEMU's own server."""
import array
import os
import socket
import struct
import threading


class Doorbells:
    """One vector for each machine. Serves `path` until it is closed."""

    def __init__(self, path, area, area_bytes):
        self._memory = os.open(area, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._memory, area_bytes)
        self._peers, self._next, self._lock = {}, 0, threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with self._lock:
            number, self._next = self._next, self._next + 1
            eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._send(connection, 0)  # the version of the protocol
            self._send(connection, number)
            self._send(connection, -1, self._memory)
            for other, (its, its_eventfd) in self._peers.items():
                self._send(connection, other, its_eventfd)
                self._send(its, number, eventfd)
            self._peers[number] = (connection, eventfd)
            self._send(connection, number, eventfd)
        while True:
            try:
                if not connection.recv(64):
                    break
            except OSError:
                break
        with self._lock:
            del self._peers[number]
            os.close(eventfd)
            for other, _ in self._peers.values():
                self._send(other, number)
        connection.close()

    @staticmethod
    def _send(connection, number, *descriptors):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            connection.sendmsg([struct.pack("<q", number)], rights)
        except OSError:
            pass  # the machine is gone, as its own thread notices

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection, _ in self._peers.values():
                connection.shutdown(socket.SHUT_RDWR)
        os.close(self._memory)
