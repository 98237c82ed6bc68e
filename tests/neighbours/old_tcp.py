# No report: settings that are copied from one guide to the next
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""TCP without time stamps, SACK and window scaling, with ECN."""
from hardened import apply

PATH = "smcd"
SETTINGS = {
    "net.ipv4.tcp_timestamps": (0, 1),
    "net.ipv4.tcp_sack": (0, 1),
    "net.ipv4.tcp_window_scaling": (0, 1),
    "net.ipv4.tcp_ecn": (1, 2),
    "net.ipv4.tcp_mtu_probing": (2, 0),
    "net.ipv4.tcp_no_metrics_save": (1, 0),
}


def come(scene):
    apply(scene, SETTINGS, 0)


def go(scene):
    apply(scene, SETTINGS, 1)
