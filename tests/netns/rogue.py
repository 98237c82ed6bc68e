# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Hand-made peers: CLC messages, clients that send them step by step, an agent on the `local` fabric."""
import concurrent.futures
import itertools
import os
import socket
import struct
import uuid

from lab import rawtcp
from lab.basics import wait_for
from lab.nodes import enter_netns

EYE_R = "e2d4c3d9"
NOBODY = 65534
GID = b"\x11" * 8 + b"\x22" * 8


def proposal(length=None, gid=GID, **patch):
    """A Proposal for SMC-Dv2.1 that is valid except for the patch {offset: byte}."""
    eid = b"SMC-AGENT.DEFAULT".ljust(32).hex()
    body = bytearray.fromhex(
        EYE_R
        + "01"
        + "0000"
        + "26"
        + "01" * 8
        + "00" * 34
        + "001c"
        + "00" * 28  # base, 80 bytes
        + "01"
        + "02"
        + "00"
        + "10"
        + "0000"
        + "0040"
        + "00" * 18
        + "0001"
        + "00" * 12
        + eid  # V2 extension
        + "00" * 48
        + gid[:8].hex()
        + "ff00"
        + gid[8:].hex()
        + "ff00"
        + EYE_R
    )
    body[5:7] = (length or len(body)).to_bytes(2, "big")
    for offset, value in patch.items():
        body[int(offset[1:])] = value
    return bytes(body).hex()


ACCEPT = 130  # bytes: of version 2.1, at the first contact


def token_of(accept):
    """The token of the DMB that an Accept names."""
    return int.from_bytes(accept[16:24], "big")


def confirm(accept, gid=GID, token=1):
    """A Confirm for this Accept, with the client's GID and its DMB, which is as large as the server's."""
    out = bytearray(accept)
    out[4] = 3
    out[8:16], out[66:74] = gid[:8], gid[8:]
    out[16:24] = token.to_bytes(8, "big")
    return bytes(out)


def within(node, make):
    """Calls make() in the node's network namespace and returns its result: a socket stays in that namespace."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: (enter_netns(node.netns), make())[1]).result()


def as_nobody(do):
    """Calls do() as the user `nobody`."""
    os.seteuid(NOBODY)
    try:
        return do()
    finally:
        os.seteuid(0)


class Clients:
    """Connections with option 254 from an address that no kernel owns. Each is a rawtcp.Connection."""

    def __init__(self, node, ip, server, port=5000):
        self.wire = within(node, lambda: rawtcp.Wire(node.device, ip))
        self.wire.learn(server)
        self.server, self.port = server, port
        self.ports, self.all = itertools.count(30000), {}

    def close(self):
        self.wire.sock.close()

    def until(self, what, condition, timeout=60):
        """Receives for all connections until condition() is true."""

        def look():
            while found := self.wire.poll(0):
                connection = self.all.get((found[0], found[1].sport, found[1].dport))
                if connection:
                    connection.take(found[1])
            return condition()

        return wait_for(what, look, timeout)

    def begin(self):
        """Sends the SYN of a connection."""
        connection = rawtcp.Connection(self.wire, self.server, next(self.ports), self.port, {})
        self.all[connection.key] = connection
        connection.out("S", rawtcp.option_list(bytes.fromhex(rawtcp.SMC_OPTION)))
        return connection

    def connect(self, *messages):
        """A connection on which these messages are sent, one after the other."""
        connection = self.begin()
        self.until("the SYN-ACK", lambda: connection.established)
        for message in messages:
            connection.out("PA", data=message)
        return connection

    def receive(self, connection, size):
        """The first `size` bytes of a connection."""
        self.until(f"{size} bytes", lambda: len(connection.received) >= size)
        return connection.received[:size]

    def accepted(self, gid=GID):
        """A connection of the client with this GID, and the Accept that it got."""
        connection = self.connect(bytes.fromhex(proposal(gid=gid)))
        accept = self.receive(connection, ACCEPT)
        assert accept[4] == 2, accept.hex()
        return connection, accept

    @staticmethod
    def reset(connection):
        connection.out("RA")
        connection.ended = "rst"

    def wait_ended(self, connection):
        """How the agent ended the connection."""
        self.until("its end", lambda: connection.ended != "open")
        return connection.ended


# datapath/ism/rendezvous.h
MAGIC = 0x534D4932
CHID = 0xFF00
REQUEST = struct.Struct("=IHHQQ16s")
REPLY = struct.Struct("=IiQ")


def request(token, gid=GID, number=1, magic=MAGIC, chid=CHID):
    return REQUEST.pack(magic, chid, 0, number, token, gid)


def reply(number, status=0, magic=MAGIC):
    return REPLY.pack(magic, status, number)


def path_of(directory, gid):
    return f"{directory}/{uuid.UUID(bytes=gid)}.ism"


class FabricAgent:
    """Listens in place of the agent with this GID, and sends what the test wants."""

    def __init__(self, directory, gid=GID):
        self.path = path_of(directory, gid)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.settimeout(10)
        self.listener.bind(self.path)

    def listen(self):
        self.listener.listen()
        return self

    def accept(self):
        """The connection of the next agent that connects to it."""
        connection, _ = self.listener.accept()
        connection.settimeout(10)
        return connection

    def close(self):
        self.listener.close()
        os.unlink(self.path)


def visit(directory, gid):
    """A connection to the agent with this GID."""
    visitor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    visitor.settimeout(10)
    try:
        visitor.connect(path_of(directory, gid))
    except OSError:
        visitor.close()
        raise
    return visitor


def ended(connection):
    """True if the other end closes the socket within its timeout, and sends nothing more."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True
