# OBI #2580 (its work-around): a verdict program that lets all pass
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The same verdict program, on the agents' sockets alone."""
import os

import verdict
from tracer_of_agents import cgroups

PATH = "smcd"
LOSES = True
KNOWN = {
    "urgent_data": "the kernel queues an urgent byte as an ordinary one",
    "urgent_inline": "likewise",
}


def come(scene):
    for cgroup in cgroups(scene):
        os.makedirs(cgroup, exist_ok=True)
    verdict.settle(scene, cgroups(scene))


def go(scene):
    verdict.leave(scene, cgroups(scene))
