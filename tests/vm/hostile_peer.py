# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An SMC-Rv2.1 client that becomes SMC-R in order and then breaks the rules.

    hostile_peer.py PROGRAM DEVICE ROCE_IP SERVER_IP

PROGRAM is its RoCE half (tests/roce/hostile_peer.cc). It reads orders from the FIFO /run/order, each a line OWN_IP
PORT ATTACK, and writes its result to the FIFO /run/seen when the attack is over and its RoCE half has ended.
"""
import os
import struct
import subprocess
import sys
import time

from lab.rawtcp import SMC_OPTION, Connection, Wire, option_list

SMCR = bytes.fromhex("e2d4c3d9")
EID = b"SMC-AGENT.DEFAULT".ljust(32)
PATTERN = bytes(i * 7 % 251 for i in range(16))  # as in peer.py
TOKEN = 0xBADC0DE


class Unexpected(Exception):
    """The server did not behave as this attack expects at its beginning."""


class Tcp:
    def __init__(self, device, own, server, port, number=0):
        self.wire = Wire(device, own)
        self.wire.learn(server)
        self.connection = Connection(self.wire, server, 40000 + number, port, {})
        self.connection.out("S", option_list(bytes.fromhex(SMC_OPTION)))

    def pump(self, condition, timeout=10):
        end = time.monotonic() + timeout
        while not condition() and time.monotonic() < end:
            found = self.wire.poll(0.05)
            if found and (found[0], found[1].sport, found[1].dport) == self.connection.key:
                self.connection.take(found[1])
        return condition()

    def send(self, data):
        self.connection.out("PA", data=data)

    def receive(self, size):
        if not self.pump(lambda: len(self.connection.received) >= size):
            raise Unexpected(f"no {size} bytes of CLC, TCP {self.connection.ended}")
        return self.connection.received[:size]


class Roce:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def send(self, message):
        return self.ask("send", message.hex())

    def close(self):
        self.process.kill()
        self.process.wait()


def clc(kind, body):
    return SMCR + struct.pack("!BHB", kind, 8 + len(body) + 4, body[0]) + body[1:] + SMCR


def proposal(peer_id, gid, mac):
    base = bytearray(80)
    base[0:4], base[4] = SMCR, 1
    base[7] = 0x22  # version 2; SMC-Rv2, no version 1
    base[8:16], base[32:38] = peer_id, mac
    struct.pack_into("!H", base, 50, 80 - 52)
    v2 = bytearray(40)
    v2[0], v2[3] = 1, 0x10
    v2[8:24], v2[24], v2[25] = gid, 255, 1
    message = bytes(base) + bytes(v2) + EID + SMCR
    return message[:5] + struct.pack("!H", len(message)) + message[7:]


def confirm(peer_id, gid, mac, qpn, psn, rkey, address, mtu, first=True, index=1, token=TOKEN):
    body = bytearray(104)
    body[0:4], body[4], body[7] = SMCR, 3, 0x28 if first else 0x20
    body[8:16], body[16:32], body[32:38] = peer_id, gid, mac
    body[38:41] = struct.pack("!I", qpn)[1:]
    struct.pack_into("!IBI", body, 41, rkey, index, token)
    body[50] = mtu  # RMBEs of 16 KiB
    struct.pack_into("!Q", body, 52, address)
    body[61:64] = struct.pack("!I", psn)[1:]
    body[64:96] = EID
    fce = bytearray(52)
    fce[0], fce[1], fce[4:36], fce[36], fce[37] = 0x80, 0x21, b"hostile".ljust(32), 255, 1
    message = bytes(body) + (bytes(fce) + struct.pack("!I", 1 << 24) + gid if first else b"") + SMCR
    return message[:5] + struct.pack("!H", len(message)) + message[7:]


def llc(kind, body=b"", flags=0):
    return (struct.pack("!BHB", 0x20 | kind, 44, flags) + body).ljust(44, b"\0")


class Hostile:
    def __init__(self, roce, device, own, roce_ip, server, port):
        self.roce = roce
        self.device, self.own, self.server, self.port = device, own, server, port
        gid, mac, qpn, psn, rkey, address = self.roce.ask("open", roce_ip).split()
        self.gid, self.mac = bytes.fromhex(gid), bytes.fromhex(mac)
        self.qpn, self.psn, self.rkey, self.address = (int(x, 16) for x in (qpn, psn, rkey, address))
        self.tcp = Tcp(device, own, server, port)
        if not self.tcp.pump(lambda: self.tcp.connection.established):
            raise Unexpected("no TCP connection")
        self.sequence = 0
        self.peer_id = os.urandom(8)  # a new peer each time

    def first_contact(self, qpn=None):
        self.tcp.send(proposal(self.peer_id, self.gid, self.mac))
        a = self.tcp.receive(160)
        if a[4] != 2:
            raise Unexpected(f"no Accept but CLC type {a[4]}")
        self.peer_rkey, self.index, self.peer_token = struct.unpack_from("!IBI", a, 41)
        self.peer_size = 16384 << (a[50] >> 4)
        self.peer_rmbe = struct.unpack_from("!Q", a, 52)[0] + (self.index - 1) * self.peer_size
        answer = self.roce.ask("connect", a[16:32].hex(), a[32:38].hex(), a[38:41].hex(), a[61:64].hex(), a[50] & 15)
        if answer != "ok":
            raise Unexpected(answer)
        self.tcp.send(
            confirm(
                self.peer_id,
                self.gid,
                self.mac,
                self.qpn if qpn is None else qpn,
                self.psn,
                self.rkey,
                self.address,
                a[50] & 15,
            )
        )

    def link_up(self):
        self.first_contact()
        request = bytes.fromhex(self.roce.ask("recv", 8000))
        if request[0] != 0x21:
            raise Unexpected(f"no CONFIRM LINK but {request.hex()}")
        reply = bytearray(request)
        reply[3] = 0x80 | 3
        reply[4:10], reply[10:26] = self.mac, self.gid
        reply[26:29] = struct.pack("!I", self.qpn)[1:]
        self.roce.send(bytes(reply))

    def second_connection(self):
        """A connection on the same link, whose first bytes arrive before its Confirm (RFC 7609 section 3.5.2.4, C1)."""
        tcp = Tcp(self.device, self.own, self.server, self.port + 1, 1)
        tcp.pump(lambda: tcp.connection.established)
        tcp.send(proposal(self.peer_id, self.gid, self.mac))
        a = tcp.receive(108)
        rkey, index, token = struct.unpack_from("!IBI", a, 41)
        rmbe = struct.unpack_from("!Q", a, 52)[0] + (index - 1) * (16384 << (a[50] >> 4))
        self.roce.ask("write", f"{rkey:x}", f"{rmbe:x}", PATTERN[:10].hex())
        self.sequence = 0
        self.cdc(token=token, producer=(0, 5))
        time.sleep(0.5)
        tcp.send(
            confirm(
                self.peer_id,
                self.gid,
                self.mac,
                self.qpn,
                self.psn,
                self.rkey,
                self.address,
                a[50] & 15,
                False,
                2,
                TOKEN + 1,
            )
        )
        return tcp, token

    def cdc(self, token=None, producer=(0, 0), consumer=(0, 0), flags=0, state=0, length=44):
        self.sequence += 1
        message = struct.pack(
            "!BBHI", 0xFE, length, self.sequence & 0xFFFF, self.peer_token if token is None else token
        )
        message += (
            b"\0\0" + struct.pack("!HI", *producer) + b"\0\0" + struct.pack("!HI", *consumer) + bytes([flags, state])
        )
        return self.roce.send(message.ljust(44, b"\0"))

    def write(self, data, at=0, rkey=None):
        return self.roce.ask(
            "write", f"{self.peer_rkey if rkey is None else rkey:x}", f"{self.peer_rmbe + at:x}", data.hex()
        )


def attack(name, h):
    """Carries out an attack; its result."""
    if name == "wrong-qpn":
        h.first_contact(qpn=0xFFFFF0)
        return "declined" if h.tcp.receive(160 + 28)[164] == 4 else "something else"
    h.link_up()
    h.write(PATTERN[:5])
    h.cdc(producer=(0, 5))
    time.sleep(1.5)  # until the application has them
    if name == "one-of-two":
        tcp, token = h.second_connection()
        h.sequence = 1
        h.cdc(producer=(0, h.peer_size))
        h.tcp.pump(lambda: h.tcp.connection.ended != "open")
        h.sequence = 1
        h.cdc(token=token, producer=(0, 10))
        time.sleep(0.5)
        return f"{h.tcp.connection.ended} {tcp.connection.ended}"
    attacks = {
        "llc-type": lambda: h.roce.send(llc(0x0F)),
        "llc-length": lambda: h.roce.send(llc(7)[:20]),
        "llc-confirm-link-again": lambda: h.roce.send(llc(1)),
        "cdc-length": lambda: h.cdc(length=40),
        "cursor-beyond": lambda: h.cdc(producer=(0, h.peer_size)),
        "cursor-lap": lambda: h.cdc(producer=(1, 6)),
        "cursor-back": lambda: h.cdc(producer=(0, 2)),
        "consumer-beyond": lambda: h.cdc(producer=(0, 5), consumer=(0, 9)),
        "foreign-rkey": lambda: h.write(b"x", rkey=h.peer_rkey ^ 0x55),
        "outside-rmb": lambda: h.write(b"x" * 64, at=1 << 40),
        "unknown-token": lambda: [h.cdc(token=h.peer_token ^ n, producer=(0, 9)) for n in range(1, 50)],
        "rkey-flood": lambda: [h.roce.send(llc(6, struct.pack("!BIQ", 0, n, n))) for n in range(1, 300)],
        "test-flood": lambda: [h.roce.send(llc(7, b"flood")) for _ in range(200)],
    }
    attacks[name]()
    time.sleep(0.5)
    seen = ""
    if name in ("unknown-token", "rkey-flood", "cursor-back"):  # nothing has happened: data still flows
        h.sequence += 100
        h.write(PATTERN[5:10], at=5)
        seen = f"sent {h.cdc(producer=(0, 10))}, "
        time.sleep(0.5)
    h.tcp.pump(lambda: h.tcp.connection.ended != "open", 1)
    return f"{seen}tcp {h.tcp.connection.ended}"


def main(program, device, roce_ip, server):
    for fifo in ("/run/order", "/run/seen"):
        os.mkfifo(fifo)
    print("listening", flush=True)
    while True:
        with open("/run/order") as order:
            own, port, name = order.read().split()
        roce = Roce(program)
        try:
            seen = attack(name, Hostile(roce, device, own, roce_ip, server, int(port)))
        except Unexpected as unexpected:
            seen = str(unexpected)
        roce.close()
        with open("/run/seen", "w") as out:
            print(seen, file=out)


main(*sys.argv[1:])
