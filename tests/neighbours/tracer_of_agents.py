# OBI #2580, #2827, #2975; Beyla #2941, #3025
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The same tracer, which holds the agents' sockets alone: legs, CLC sockets and listeners."""
import os

import tracer

PATH = "smcd"


def cgroups(scene):
    return [f"{node.cgroup}/smc-agent" for node in scene.hosts]


def come(scene):
    for cgroup in cgroups(scene):
        os.makedirs(cgroup, exist_ok=True)  # an agent enters it when it starts
    tracer.settle(scene, cgroups(scene))


def go(scene):
    tracer.leave(scene, cgroups(scene))
