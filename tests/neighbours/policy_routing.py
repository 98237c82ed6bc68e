# Mullvad VPN #2577
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Routing by mark: each TCP packet is marked, and takes the table of that mark."""
PATH = "smcd"
TABLE = "77"


def come(scene):
    for node, peer in zip(scene.nodes, reversed(scene.nodes)):
        rules = (
            "table ip marks { chain c { type route hook output priority -150; meta l4proto tcp meta mark set 7; }; }"
        )
        node.run(["nft", rules], check=True)
        node.run(["ip", "route", "add", peer.ip4, "dev", node.device, "table", TABLE], check=True)
        node.run(["ip", "rule", "add", "fwmark", "7", "lookup", TABLE, "priority", "100"], check=True)
        node.run(
            ["ip", "rule", "add", "ipproto", "tcp", "to", peer.ip4, "fwmark", "7", "prohibit", "priority", "101"],
            check=True,
        )


def go(scene):
    for node, peer in zip(scene.nodes, reversed(scene.nodes)):
        node.run(["nft", "delete table ip marks"], check=True)
        for priority in ("100", "101"):
            node.run(["ip", "rule", "del", "priority", priority], check=True)
        node.run(["ip", "route", "flush", "table", TABLE], check=True)
