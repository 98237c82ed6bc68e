# Cilium #15824 (bandwidth limits of pods)
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A shaper on the device (tbf)."""
PATH = "tcp"
BYPASS = False


def come(scene):
    words = "qdisc replace dev DEV root tbf rate 800mbit burst 256kb latency 50ms".split()
    scene.both(lambda node: scene.tc(node, *words))


def go(scene):
    scene.both(lambda node: scene.tc(node, *"qdisc del dev DEV root".split()))
