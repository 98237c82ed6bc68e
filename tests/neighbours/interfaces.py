# systemd #18385, #26104
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A filter that lets a service use one device only (systemd's RestrictNetworkInterfaces=)."""
PATH = "smcd"
PROGRAMS = """
const volatile __u32 allowed = %d;
SEC("cgroup_skb/ingress") int in(struct __sk_buff *skb) { return skb->ifindex == allowed; }
SEC("cgroup_skb/egress") int out(struct __sk_buff *skb) { return skb->ifindex == allowed; }
"""


def of(scene, node):
    index = int(node.run(["ip", "-o", "link", "show", "dev", node.device], check=True).stdout.split(":")[0])
    return scene.load(f"// {node.name}{PROGRAMS % index}")


def come(scene):
    for node in scene.nodes:
        pins = of(scene, node)
        scene.attach("ingress", f"{pins}/in", node.apps)
        scene.attach("egress", f"{pins}/out", node.apps)


def go(scene):
    for node in scene.nodes:
        pins = of(scene, node)
        scene.detach("ingress", f"{pins}/in", node.apps)
        scene.detach("egress", f"{pins}/out", node.apps)
