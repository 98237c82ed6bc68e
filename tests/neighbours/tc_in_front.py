# Cilium #17193, #41393
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs of tc in front of the agent's (clsact), which let all packets on."""
PATH = "smcd"
KNOWN = {"zerocopy": "plain TCP beside it is not always told that its data has left"}
CONFIG = {"bpf": {"tc": "clsact"}}
PROGRAMS = """
SEC("tc") int look(struct __sk_buff *skb)
{
  bpf_skb_pull_data(skb, skb->len); /* its data is linear, and is no clone's, from here on */
  skb->mark = 0x200;
  return TC_ACT_UNSPEC;
}
"""
SIDES = ("ingress", "egress")


def come(scene):
    pins = scene.load(PROGRAMS)

    def add(node):
        scene.tc(node, "qdisc", "add", "dev", "DEV", "clsact", check=False)
        for side in SIDES:
            scene.tc(node, *f"filter add dev DEV {side} prio 1 bpf da object-pinned {pins}/look".split())

    scene.both(add)


def go(scene):
    def remove(node):
        for side in SIDES:
            scene.tc(node, *f"filter del dev DEV {side} prio 1".split())

    scene.both(remove)
