# OBI #2580 (its work-around): a verdict program that lets all pass
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The same, with the agents' sockets alone."""
import verdict
from tracer_of_agents import cgroups

PATH = "smcd"
LOSES = True
DIFFERS = "urgent data"  # in a few words
KNOWN = {
    "urgent_data": "the kernel queues an urgent byte as an ordinary one",
    "urgent_inline": "likewise",
}


def come(scene):
    verdict.settle(scene, cgroups(scene))


def go(scene):
    verdict.leave(scene, cgroups(scene))
