# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Makes captures: Ethernet, IPv4 or IPv6, TCP and RoCEv2 around given bytes. Nothing is sent anywhere."""
import ipaddress
import struct

OPTION = bytes.fromhex("fe06e2d4c3d9" "0101")
SYN, ACK, PSH, FIN, RST = 2, 16, 8, 1, 4


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ip(source, target, protocol, payload):
    a, b = ipaddress.ip_address(source), ipaddress.ip_address(target)
    if a.version == 6:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + a.packed + b.packed + payload
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0) + a.packed + b.packed
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def ethernet(source, target, protocol, payload, tags=b""):
    kind = b"\x86\xdd" if ":" in source else b"\x08\0"
    return b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + tags + kind + ip(source, target, protocol, payload)


def tcp(source, target, sequence, flags, payload=b"", options=b"", acknowledged=0):
    return struct.pack("!HHIIBBHHH", source, target, sequence & 0xffffffff, acknowledged, (20 + len(options)) // 4 << 4,
                       flags, 65535, 0, 0) + options + payload


def roce_send(qpn, psn, payload, opcode=4):
    pad = -len(payload) % 4
    bth = struct.pack("!BBHII", opcode, pad << 4, 0xffff, qpn, psn)
    body = bth + payload + b"\0" * (pad + 4)
    return struct.pack("!HHHH", 49441, 4791, 8 + len(body), 0) + body


class Capture:
    """Frames in order, one microsecond apart."""

    def __init__(self, link_type=1):
        self.link_type, self.frames = link_type, []

    def add(self, frame):
        self.frames.append(frame)
        return len(self.frames)

    def write(self, path):
        with open(path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, self.link_type))
            for i, frame in enumerate(self.frames):
                file.write(struct.pack("<IIII", 1700000000, i, len(frame), len(frame)) + frame)


class Connection:
    """A TCP connection whose SYN and SYN-ACK carry option 254."""

    def __init__(self, capture, client="10.0.0.1", server="10.0.0.2", port=1000, options=OPTION, answer=OPTION):
        self.capture, self.hosts, self.ports = capture, (client, server), (port, 5000)
        self.next = [1000, 5000]
        self.segment(0, b"", SYN, options)
        self.segment(1, b"", SYN | ACK, answer)

    def segment(self, side, payload, flags=ACK | PSH, options=b""):
        a, b = self.hosts[side], self.hosts[1 - side]
        frame = ethernet(a, b, 6, tcp(self.ports[side], self.ports[1 - side], self.next[side], flags, payload, options,
                                      self.next[1 - side]))
        self.next[side] += len(payload) + (1 if flags & (SYN | FIN) else 0)
        return self.capture.add(frame)

    def client(self, payload, flags=ACK | PSH):
        return self.segment(0, payload, flags)

    def server(self, payload, flags=ACK | PSH):
        return self.segment(1, payload, flags)
