# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A TCP endpoint without a kernel, for peers that behave as no kernel does: any options in the SYN, silence, nonsense.

It lives on an address that its namespace's kernel does not own, so no kernel answers in its place. Run as

    python3 rawtcp.py DEVICE OWN_IP client SERVER_IP PORT SCRIPT     connects and plays the script
    python3 rawtcp.py DEVICE OWN_IP server PORT SCRIPT               answers every connection by the script

SCRIPT is JSON: {"options": hex or "echo" (repeat the SYN's options), "send": [hex, ...], "trickle": seconds between
bytes, "count": connections, "deaf_to": hex (SYNs with these bytes among their options are not seen), "close": "fin" |
"rst" | null, "listen_s": seconds}. A client ends its handshake after "ack_after" seconds. It repeats its SYN after
"again_after" seconds, or after each time of a list until the SYN is answered. A server's "options" only answer a SYN
with option 254, unless "always". Prints one JSON line per connection:
{"received": hex, "ended": "fin" | "rst" | "open" | "refused"}.
"""
import json
import random
import select
import socket
import sys
import time

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import ARP, Ether

SMC_OPTION = "fe06e2d4c3d9"


def option_list(data):
    """The bytes of TCP options that are given in scapy's form."""
    out = []
    while data:
        length = 1 if data[0] in (0, 1) else data[1]
        out.append((data[0], data[2:length]) if length > 1 else ("NOP" if data[0] else "EOL", None))
        data = data[length:]
    return out


def option_bytes(segment):
    return bytes(segment)[20 : segment.dataofs * 4]


class Wire:
    """IPv4 frames of one address on one device; answers ARP for it."""

    def __init__(self, device, ip):
        self.ip = ip
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: nothing here is sent twice
        self.sock.bind((device, 0))
        self.mac = ":".join(f"{byte:02x}" for byte in self.sock.getsockname()[4])
        self.macs = {}  # of peers

    def learn(self, peer):
        self.sock.send(
            bytes(
                Ether(src=self.mac, dst="ff:ff:ff:ff:ff:ff")
                / ARP(op="who-has", hwsrc=self.mac, psrc=self.ip, pdst=peer)
            )
        )
        end = time.monotonic() + 5
        while peer not in self.macs and time.monotonic() < end:
            self.poll(0.1)

    def poll(self, timeout):
        """The next TCP segment for this address, and its source address; None: there is none."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return None
        frame = Ether(self.sock.recv(65536))
        if ARP in frame and frame[ARP].pdst == self.ip:
            self.macs[frame[ARP].psrc] = frame[ARP].hwsrc
            if frame[ARP].op == 1:
                self.sock.send(
                    bytes(
                        Ether(src=self.mac, dst=frame.src)
                        / ARP(op="is-at", hwsrc=self.mac, psrc=self.ip, hwdst=frame[ARP].hwsrc, pdst=frame[ARP].psrc)
                    )
                )
        if IP not in frame or TCP not in frame or frame[IP].dst != self.ip:
            return None
        self.macs[frame[IP].src] = frame.src
        return frame[IP].src, frame[TCP]

    def send(self, to, segment):
        self.sock.send(bytes(Ether(src=self.mac, dst=self.macs[to]) / IP(src=self.ip, dst=to) / segment))


class Connection:
    """One connection of a wire: sends what it is told, takes what comes, retransmits nothing."""

    def __init__(self, wire, peer, own_port, peer_port, script):
        self.wire, self.peer, self.own_port, self.peer_port, self.script = wire, peer, own_port, peer_port, script
        self.seq, self.ack = random.getrandbits(32), 0
        self.received, self.ended = b"", "open"
        self.options = None  # of the SYN-ACK, when it was sent
        self.todo = [bytes.fromhex(h) for h in script.get("send", [])]
        if script.get("trickle"):
            self.todo = [bytes([byte]) for piece in self.todo for byte in piece]
        self.next_at = 0.0
        again = script.get("again_after", [])
        self.again = [time.monotonic() + seconds for seconds in (again if isinstance(again, list) else [again])]
        self.established = self.closed = self.acknowledged = False

    @property
    def key(self):
        return self.peer, self.peer_port, self.own_port

    def out(self, flags, options=(), data=b""):
        self.wire.send(
            self.peer,
            TCP(
                sport=self.own_port,
                dport=self.peer_port,
                seq=self.seq,
                ack=self.ack,
                flags=flags,
                window=65535,
                options=list(options),
            )
            / data,
        )
        self.seq = (self.seq + len(data) + (1 if "S" in flags or "F" in flags else 0)) & 0xFFFFFFFF

    def answer(self, options):
        self.options = options
        self.out("SA", options)

    def is_begun_by(self, syn):
        """True if the segment is this connection's SYN, perhaps repeated."""
        return self.ack == (syn.seq + 1) & 0xFFFFFFFF and not self.established and self.ended == "open"

    def answer_again(self):
        self.seq = (self.seq - 1) & 0xFFFFFFFF
        self.answer(self.options)

    def acknowledge(self):
        self.acknowledged = True
        self.out("A")

    def take(self, segment):
        flags, data = segment.flags, bytes(segment.payload)
        if flags.R:
            self.ended = "rst" if self.established else "refused"
            return
        if flags.S and flags.A:
            self.ack = (segment.seq + 1) & 0xFFFFFFFF
            self.established = True
            if "ack_after" in self.script:
                self.next_at = time.monotonic() + self.script["ack_after"]
            else:
                self.acknowledge()
            return
        if flags.A:
            self.established = True
        if segment.seq == self.ack and data:
            self.received += data
            self.ack = (self.ack + len(data)) & 0xFFFFFFFF
        if flags.F and segment.seq + len(data) == self.ack:
            self.ack = (self.ack + 1) & 0xFFFFFFFF
            self.ended = "fin"
        if data or flags.F:
            self.out("A")

    def begin(self):
        self.out("S", option_list(bytes.fromhex(self.script.get("options", SMC_OPTION))))

    def work(self, now):
        if self.again and now >= self.again[0] and not self.acknowledged:
            self.again.pop(0)
            self.seq = (self.seq - 1) & 0xFFFFFFFF
            self.begin()
        if not self.established or self.ended != "open" or now < self.next_at:
            return
        if "ack_after" in self.script and not self.acknowledged:
            self.acknowledge()
        if self.todo:
            self.out("PA", data=self.todo.pop(0))
            self.next_at = now + self.script.get("trickle", 0)
        elif self.script.get("close") and not self.closed:
            self.closed = True
            if self.script["close"] == "rst":
                self.out("RA")
                self.ended = "rst"
            else:
                self.out("FA")

    def report(self):
        return {"received": self.received.hex(), "ended": self.ended}


def run(wire, connections, script, server_port=None):
    end = time.monotonic() + script.get("listen_s", 10)
    connections = list(connections)
    by_key = {c.key: c for c in connections}
    while time.monotonic() < end:
        found = wire.poll(0.01)
        if found:
            peer, segment = found
            key = (peer, segment.sport, segment.dport)
            syn = segment.flags.S and not segment.flags.A
            if syn and script.get("deaf_to") and bytes.fromhex(script["deaf_to"]) in option_bytes(segment):
                continue
            if syn and segment.dport == server_port and key in by_key and by_key[key].is_begun_by(segment):
                by_key[key].answer_again()
            elif syn and segment.dport == server_port:
                connection = Connection(wire, peer, segment.dport, segment.sport, script)
                connection.ack = (segment.seq + 1) & 0xFFFFFFFF
                asked = script.get("always") or bytes.fromhex(SMC_OPTION) in option_bytes(segment)
                chosen = script.get("options", "") if asked else ""
                echoed = option_bytes(segment) if chosen == "echo" else bytes.fromhex(chosen)
                connection.answer(option_list(echoed))
                connections.append(connection)
                by_key[key] = connection
            elif key in by_key:
                by_key[key].take(segment)
        now = time.monotonic()
        for connection in connections:
            connection.work(now)
        if server_port is None and all(c.ended != "open" for c in connections):
            break
    return connections


def main():
    device, own, role = sys.argv[1:4]
    wire = Wire(device, own)
    if role == "client":
        server, port, script = sys.argv[4], int(sys.argv[5]), json.loads(sys.argv[6])
        wire.learn(server)
        connections = []
        for i in range(script.get("count", 1)):
            connection = Connection(wire, server, 20000 + i, port, script)
            connection.begin()
            connections.append(connection)
        done = run(wire, connections, script)
    else:
        print("listening", flush=True)
        done = run(wire, [], json.loads(sys.argv[5]), int(sys.argv[4]))
    for connection in done:
        print(json.dumps(connection.report()), flush=True)


if __name__ == "__main__":
    main()
