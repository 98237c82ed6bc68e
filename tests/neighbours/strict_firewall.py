# Kubernetes #74839, #94861; Cilium #5895
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A firewall that drops what connection tracking does not know, in and out, also on lo."""
PATH = "smcd"
RULES = """
table inet tracking { chain c { type filter hook input priority -1; ct state new; }; } # stays: states are not lost
table inet strict {
  chain in { type filter hook input priority 0; policy drop;
    ct state invalid counter drop; ct state established,related accept;
    tcp flags & (fin|syn|rst|ack) == syn ct state new tcp dport 1024-65535 accept; icmp type echo-request accept;
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; }
  chain out { type filter hook output priority 0; policy drop;
    ct state invalid counter drop; ct state established,related accept; ct state new tcp dport 1024-65535 accept;
    icmp type echo-request accept; icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; }
}
"""


def come(scene):
    scene.both(lambda node: node.run(["nft", RULES], check=True))


def go(scene):
    scene.both(lambda node: node.run(["nft", "delete table inet strict"], check=True))
