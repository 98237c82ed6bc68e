# OBI #2580, #2827, #2975; Beyla #2941, #3025
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The same tracer, with the agents' sockets alone: legs and CLC sockets."""
import tracer

PATH = "smcd"


def cgroups(scene):
    return [scene.agents_cgroup(host) for host in scene.hosts]


def come(scene):
    tracer.settle(scene, cgroups(scene), tracer.READS_MESSAGES)


def go(scene):
    tracer.leave(scene, cgroups(scene), tracer.READS_MESSAGES)
