# No report: tcpdump on a busy node
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A packet capture on every device, in promiscuous mode (tcpdump)."""
import subprocess

PATH = "smcd"
CAPTURE = """
import select, socket, struct, sys
socks = []
for device in sys.argv[1:]:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)
    sock.bind((device, 0x0003))
    sock.setsockopt(263, 1, struct.pack('iHH8s', socket.if_nametoindex(device), 1, 0, bytes(8)))  # promiscuous
    socks.append(sock)
print('capturing', flush=True)
while True:
    for sock in select.select(socks, [], [])[0]:
        sock.recv(1 << 17)
"""


def come(scene):
    scene.helpers = []
    for node in scene.nodes:
        command = ["/usr/bin/python3", "-B", "-c", CAPTURE, node.device, "lo"]
        helper = node.popen(command, cgroup=scene.everybody, stdout=subprocess.PIPE, text=True)
        assert helper.stdout.readline() == "capturing\n"
        scene.helpers.append(helper)


def go(scene):
    for helper in scene.helpers:
        helper.kill()
        helper.wait()
        helper.stdout.close()
