# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A TCP endpoint made by hand, for peers no kernel would be: any options in the SYN, silence, nonsense.

It lives on an address that its namespace's kernel does not own, so no kernel answers in its place. Run as

    python3 rawtcp.py DEVICE OWN_IP client SERVER_IP PORT SCRIPT     connects and plays the script
    python3 rawtcp.py DEVICE OWN_IP server PORT SCRIPT               answers every connection by the script

SCRIPT is JSON: {"options": hex or "echo" (repeat the SYN's options), "send": [hex, ...], "trickle": seconds
between bytes, "count": connections, "deaf_to": hex (SYNs with these bytes among their options are not seen),
"close": "fin" | "rst" | null, "listen_s": seconds}. Prints one JSON line
per connection: {"received": hex, "ended": "fin" | "rst" | "open" | "refused"}.
"""
import json
import random
import select
import socket
import struct
import sys
import time

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
SMC_OPTION = "fe06e2d4c3d9"


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Wire:
    """IPv4 frames of one address on one device; answers ARP for it."""

    def __init__(self, device, ip):
        self.ip = socket.inet_aton(ip)
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: nothing here is sent twice
        self.sock.bind((device, 0))
        self.mac = self.sock.getsockname()[4]
        self.peer_mac = {}

    def learn(self, peer_ip):
        request = struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + self.mac + self.ip + b"\0" * 6 + socket.inet_aton(peer_ip)
        self.sock.send(b"\xff" * 6 + self.mac + b"\x08\x06" + request)
        end = time.monotonic() + 5
        while socket.inet_aton(peer_ip) not in self.peer_mac and time.monotonic() < end:
            self.poll(0.1)

    def poll(self, timeout):
        """The next TCP segment for us: (source ip, source port, own port, seq, ack, flags, options, data)."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return None
        frame = self.sock.recv(65536)
        kind, packet = frame[12:14], frame[14:]
        if kind == b"\x08\x06" and packet[24:28] == self.ip:
            self.peer_mac[packet[14:18]] = packet[8:14]
            if packet[6:8] == b"\0\1":
                reply = packet[:6] + b"\0\2" + self.mac + self.ip + packet[8:18]
                self.sock.send(frame[6:12] + self.mac + b"\x08\x06" + reply)
        if kind != b"\x08\x00" or packet[16:20] != self.ip or packet[9] != 6:
            return None
        self.peer_mac[packet[12:16]] = frame[6:12]
        length = struct.unpack("!H", packet[2:4])[0]
        tcp = packet[(packet[0] & 15) * 4:length]
        sport, dport, seq, ack, offset, flags = struct.unpack("!HHIIBB", tcp[:14])
        head = (offset >> 4) * 4
        return packet[12:16], sport, dport, seq, ack, flags, tcp[20:head], tcp[head:]

    def send(self, to, sport, dport, seq, ack, flags, options=b"", data=b""):
        options += b"\1" * (-len(options) % 4)
        tcp = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, (5 + len(options) // 4) << 4, flags, 65535, 0, 0) + options + data
        pseudo = self.ip + to + struct.pack("!HH", 6, len(tcp))
        tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + self.ip + to
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        self.sock.send(self.peer_mac[to] + self.mac + b"\x08\x00" + ip + tcp)


class Connection:
    def __init__(self, wire, peer, sport, dport, script):
        self.wire, self.peer, self.sport, self.dport, self.script = wire, peer, sport, dport, script
        self.seq, self.ack = random.getrandbits(32), 0
        self.received, self.ended = b"", "open"
        self.todo = [bytes.fromhex(h) for h in script.get("send", [])]
        if script.get("trickle"):
            self.todo = [bytes([byte]) for piece in self.todo for byte in piece]
        self.next_at = 0.0
        self.established = self.closed = False

    def out(self, flags, options=b"", data=b""):
        self.wire.send(self.peer, self.sport, self.dport, self.seq, self.ack, flags, options, data)
        self.seq = (self.seq + len(data) + (1 if flags & (SYN | FIN) else 0)) & 0xFFFFFFFF

    def take(self, seq, flags, options, data):
        if flags & RST:
            self.ended = "rst" if self.established else "refused"
            return
        if flags & SYN and flags & ACK:
            self.ack = (seq + 1) & 0xFFFFFFFF
            self.established = True
            self.out(ACK)
            return
        if flags & ACK:
            self.established = True
        if seq == self.ack and data:
            self.received += data
            self.ack = (self.ack + len(data)) & 0xFFFFFFFF
        if flags & FIN and seq + len(data) == self.ack:
            self.ack = (self.ack + 1) & 0xFFFFFFFF
            self.ended = "fin"
        if data or flags & FIN:
            self.out(ACK)

    def work(self, now):
        if not self.established or self.ended != "open" or now < self.next_at:
            return
        if self.todo:
            self.out(ACK | PSH, data=self.todo.pop(0))
            self.next_at = now + self.script.get("trickle", 0)
        elif self.script.get("close") and not self.closed:
            self.closed = True
            if self.script["close"] == "rst":
                self.out(RST | ACK)
                self.ended = "rst"
            else:
                self.out(FIN | ACK)

    def report(self):
        return {"received": self.received.hex(), "ended": self.ended}


def run(wire, connections, script, server_port=None):
    end = time.monotonic() + script.get("listen_s", 10)
    by_key = {(c.peer, c.dport, c.sport): c for c in connections}
    while time.monotonic() < end:
        segment = wire.poll(0.01)
        now = time.monotonic()
        if segment:
            peer, sport, dport, seq, ack, flags, options, data = segment
            key = (peer, sport, dport)
            if flags & SYN and script.get("deaf_to") and bytes.fromhex(script["deaf_to"]) in options:
                continue
            if flags & SYN and not flags & ACK and dport == server_port:
                connection = Connection(wire, peer, dport, sport, script)
                connection.ack = (seq + 1) & 0xFFFFFFFF
                chosen = script.get("options", "")
                connection.out(SYN | ACK, options if chosen == "echo" else bytes.fromhex(chosen))
                by_key[key] = connection
            elif key in by_key:
                by_key[key].take(seq, flags, options, data)
        for connection in by_key.values():
            connection.work(now)
        if server_port is None and all(c.ended != "open" for c in by_key.values()):
            break
    return by_key.values()


def main():
    device, own, role = sys.argv[1:4]
    wire = Wire(device, own)
    if role == "client":
        server, port, script = sys.argv[4], int(sys.argv[5]), json.loads(sys.argv[6])
        wire.learn(server)
        connections = []
        for i in range(script.get("count", 1)):
            connection = Connection(wire, socket.inet_aton(server), 20000 + i, port, script)
            connection.out(SYN, bytes.fromhex(script.get("options", SMC_OPTION)))
            connections.append(connection)
        done = run(wire, connections, script)
    else:
        print("listening", flush=True)
        done = run(wire, [], json.loads(sys.argv[5]), int(sys.argv[4]))
    for connection in done:
        print(json.dumps(connection.report()), flush=True)


if __name__ == "__main__":
    main()
