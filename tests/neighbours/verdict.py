# OBI #2580 (its work-around): a verdict program that lets all pass
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A tracer whose sockmap also has a verdict program (OBI)."""
import tracer

PATH = "smcd"
BYPASS = None
CASES = False  # see tracer.py
LOSES = True  # the kernel forgets what is queued for a socket when it leaves the map
LETS_PASS = ("skb_verdict", 'SEC("sk_skb") int pass(struct __sk_buff *skb) { return SK_PASS; }')


def come(scene):
    tracer.settle(scene, [scene.everybody], LETS_PASS)


def go(scene):
    tracer.leave(scene, [scene.everybody], LETS_PASS)
