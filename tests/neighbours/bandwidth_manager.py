# Cilium #12868, #15824
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A bandwidth manager: a program at the egress says when each packet leaves (Cilium, EDT)."""
PATH = "tcp"
BYPASS = False
PROGRAMS = """
SEC("tc") int pace(struct __sk_buff *skb)
{
  skb->tstamp = bpf_ktime_get_ns() + 100000;
  return TC_ACT_OK;
}
"""


def come(scene):
    pins = scene.load(PROGRAMS)

    def add(node):
        scene.tc(node, *"qdisc replace dev DEV root fq".split(), check=False)  # unless this kernel has none
        scene.tc(node, "qdisc", "add", "dev", "DEV", "clsact", check=False)
        scene.tc(node, *f"filter add dev DEV egress prio 50000 bpf da object-pinned {pins}/pace".split())

    scene.both(add)


def go(scene):
    def remove(node):
        scene.tc(node, *"filter del dev DEV egress prio 50000".split())
        scene.tc(node, *"qdisc del dev DEV root".split(), check=False)

    scene.both(remove)
