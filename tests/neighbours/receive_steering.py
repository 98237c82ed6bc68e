# No report: what Linux' Documentation/networking/scaling.rst describes
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Packets are spread over all processors (RPS)."""
import os

PATH = "smcd"


def spread(scene, mask):
    script = f"for q in /sys/class/net/*/queues/rx-*; do echo {mask} > $q/rps_cpus; done"  # of the namespace's own /sys
    scene.both(lambda node: node.run(["ip", "netns", "exec", node.netns, "sh", "-c", script], check=True))


def come(scene):
    spread(scene, f"{(1 << os.cpu_count()) - 1:x}")


def go(scene):
    spread(scene, 0)
