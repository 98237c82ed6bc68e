# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The ways that a connection can go between two nodes with agents, to compare each with plain TCP:

    smcd      shared memory of this node
    ivshmem   a file that stands for the memory of an ivshmem device
    joined    two TCP connections that the server's agent joins, because option 254 was removed from its SYN-ACK
"""
import os
import socket

CONNECTIONS = 250  # at most, each with an address of its own
STRIPS_ANSWERS = "tcp flags & (syn|ack) == syn|ack reset tcp option 254"
WAYS = ("smcd", "ivshmem", "joined")


def own_address(number):
    return f"10.78.0.{number % CONNECTIONS + 1}"


class Ways:
    """A client and a server, behind a router that can take options out of packets."""

    def __init__(self, lab, **config):
        self.config = config
        self.client, self.box, self.server = (lab.node(name) for name in ("a", "box", "b"))
        lab.link(self.client, self.box)
        near = self.box.ip4
        lab.link(self.box, self.server)
        self.client.run(["ip", "route", "add", self.server.ip4, "via", near], check=True)
        self.server.run(["ip", "route", "add", "10.78.0.0/24", "via", self.box.ip4], check=True)
        self.box.run(["ip", "route", "add", "10.78.0.0/24", "via", self.client.ip4], check=True)
        self.box.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        addresses = "".join(f"addr add {own_address(n)} dev {self.client.device}\n" for n in range(CONNECTIONS))
        path = self.client.write("addresses", addresses)
        self.client.run(["ip", "-batch", path], check=True)
        self.area = os.path.join(lab.run, "area")
        with open(self.area, "wb") as file:
            file.truncate(1 << 30)

    def start(self, way):
        """Starts agents between which all connections go this way, if each has a port and an address of its own."""
        more = {"ism": {"provider": "ivshmem", "device": self.area}} if way == "ivshmem" else {}
        rules = f"{STRIPS_ANSWERS}; {STRIPS_ANSWERS};" if way == "joined" else ""  # a rule takes out one option
        table = f"table inet t {{ chain c {{ type filter hook forward priority 0; {rules} }}; }}"
        self.box.run(["nft", f"flush ruleset; {table}"], check=True)
        for node in (self.client, self.server):
            node.start_agent(**self.config, **more)

    def check(self, way, connections):
        """So many connections went this way."""
        totals = (self.server if way == "joined" else self.client).agent.totals()
        print(f"{way}: paths of the agent: {totals}")
        path = ("fallback", "answer_lost") if way == "joined" else ("smcd", "none")
        others = sum(count for other, count in totals.items() if other[0] != path[0])
        assert sum(totals.values()) >= connections and not others, f"not all connections went this way: {totals}"

    def stop(self):
        for node in (self.client, self.server):
            if node.agent.process.poll() is None:
                node.agent.stop()

    def connect(self, listen, port, number, send_buffer=0):
        """Both ends of a connection from the client's node, in which the caller is."""
        with listen(socket.AF_INET, ("0.0.0.0", port)) as listener:
            client = socket.socket()
            if send_buffer:
                for sock in (listener, client):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            client.settimeout(20)
            client.bind((own_address(number), 0))
            client.connect((self.server.ip4, port))
            return client, listener.accept()[0]
