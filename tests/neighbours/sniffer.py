# No report: tcpdump on a busy node
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A packet capture on every device, in promiscuous mode (tcpdump)."""
import socket
import struct

from rogue import within

PATH = "smcd"
ALL = 0x0300  # ETH_P_ALL, in network order


def come(scene):
    for node in scene.nodes:
        for device in (node.device, "lo"):
            sock = within(node, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ALL))
            index = within(node, lambda: socket.if_nametoindex(device))
            sock.setsockopt(263, 1, struct.pack("iHH8s", index, 1, 0, bytes(8)))  # PACKET_ADD_MEMBERSHIP
            scene.sockets.append(sock)


def go(scene):
    while scene.sockets:
        scene.sockets.pop().close()
