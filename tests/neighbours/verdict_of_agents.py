# OBI #2580 (its work-around): a verdict program that lets all pass
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The same, with the agents' sockets alone."""
import tracer
from tracer_of_agents import cgroups
from verdict import LETS_PASS

PATH = "smcd"
LOSES = True
DIFFERS = "urgent data"  # in a few words
KNOWN = {
    "urgent_data": "the kernel queues an urgent byte as an ordinary one",
    "urgent_inline": "likewise",
}


def come(scene):
    tracer.settle(scene, cgroups(scene), LETS_PASS)


def go(scene):
    tracer.leave(scene, cgroups(scene), LETS_PASS)
