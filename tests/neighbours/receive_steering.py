# No report: what Linux' Documentation/networking/scaling.rst describes
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Packets are spread over all processors (RPS)."""
PATH = "smcd"


def spread(scene, mask):
    script = f"for q in /sys/class/net/*/queues/rx-*; do echo {mask} > $q/rps_cpus; done"  # of the namespace's own /sys
    scene.both(lambda node: node.run(["ip", "netns", "exec", node.netns, "sh", "-c", script], check=True))


def come(scene):
    spread(scene, 3)


def go(scene):
    spread(scene, 0)
