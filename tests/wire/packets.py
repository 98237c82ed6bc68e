# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Makes captures: Ethernet, IPv4 or IPv6, TCP and RoCEv2 around given bytes. Nothing is sent anywhere."""
from lab.rawtcp import SMC_OPTION, option_list
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.contrib.roce import BTH
from scapy.utils import RawPcapWriter

OPTION = bytes.fromhex(SMC_OPTION)
ROCE_PORT = 4791


def ethernet(source, target, segment):
    ip = IPv6 if ":" in source else IP
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip(src=source, dst=target) / segment)


def roce_send(qpn, psn, payload, opcode=4):
    """A packet of a SEND; its invariant CRC is not valid, as no reader checks it."""
    pad = -len(payload) % 4
    return UDP(sport=49441, dport=ROCE_PORT, chksum=0) / bytes(
        BTH(opcode=opcode, padcount=pad, dqpn=qpn, psn=psn, pkey=0xFFFF, icrc=0) / (payload + b"\0" * pad)
    )


def roce_answer(qpn, psn, syndrome):
    return UDP(sport=49441, dport=ROCE_PORT, chksum=0) / bytes(
        BTH(opcode=0x11, dqpn=qpn, psn=psn, pkey=0xFFFF, icrc=0) / bytes([syndrome, 0, 0, 0])
    )


class Capture:
    """Frames in order, one microsecond apart."""

    def __init__(self, link_type=1):
        self.link_type, self.frames = link_type, []

    def add(self, frame):
        self.frames.append(frame)
        return len(self.frames)

    def write(self, path):
        with RawPcapWriter(path, linktype=self.link_type, snaplen=262144) as file:
            file.write_header(None)
            for i, frame in enumerate(self.frames):
                file.write_packet(frame, sec=1700000000, usec=i)


class Connection:
    """A TCP connection whose SYN and SYN-ACK carry option 254."""

    def __init__(self, capture, client="10.0.0.1", server="10.0.0.2", port=1000, options=OPTION, answer=OPTION):
        self.capture, self.hosts, self.ports = capture, (client, server), (port, 5000)
        self.next = [1000, 5000]
        self.segment(0, b"", "S", options)
        self.segment(1, b"", "SA", answer)

    def segment(self, side, payload, flags="PA", options=b""):
        segment = (
            TCP(
                sport=self.ports[side],
                dport=self.ports[1 - side],
                seq=self.next[side] & 0xFFFFFFFF,
                ack=self.next[1 - side] & 0xFFFFFFFF,
                flags=flags,
                options=option_list(options),
            )
            / payload
        )
        self.next[side] += len(payload) + (1 if "S" in flags or "F" in flags else 0)
        return self.capture.add(ethernet(self.hosts[side], self.hosts[1 - side], segment))

    def client(self, payload, flags="PA"):
        return self.segment(0, payload, flags)

    def server(self, payload, flags="PA"):
        return self.segment(1, payload, flags)
