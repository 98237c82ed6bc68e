# rkt #1931; OVN-Kubernetes #3006
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Hardened settings: strict reverse path filter, SYN cookies always, no redirects, RFC 1337."""
PATH = "smcd"
SETTINGS = {
    "net.ipv4.conf.all.rp_filter": (1, 0),
    "net.ipv4.conf.default.rp_filter": (1, 0),
    "net.ipv4.conf.all.log_martians": (1, 0),
    "net.ipv4.conf.all.arp_ignore": (2, 0),
    "net.ipv4.conf.all.accept_redirects": (0, 1),
    "net.ipv4.tcp_syncookies": (2, 1),
    "net.ipv4.tcp_rfc1337": (1, 0),
    "net.ipv4.tcp_abort_on_overflow": (1, 0),
}


def apply(scene, settings, which):
    words = [f"{name}={values[which]}" for name, values in settings.items()]
    scene.both(lambda node: node.run(["sysctl", "-qw", *words], check=True))
    if "net.ipv4.conf.all.rp_filter" in settings:
        for node in scene.nodes:
            for device in (node.device, "lo"):
                value = settings["net.ipv4.conf.all.rp_filter"][which]
                node.run(["sysctl", "-qw", f"net.ipv4.conf.{device}.rp_filter={value}"], check=True)


def come(scene):
    apply(scene, SETTINGS, 0)


def go(scene):
    apply(scene, SETTINGS, 1)
