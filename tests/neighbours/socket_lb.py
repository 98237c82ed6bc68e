# Cilium #16259, #43877
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A load balancer in connect(): hooks of the cgroup write each address (Cilium's socket LB)."""
PATH = "smcd"
PROGRAMS = """
SEC("cgroup/connect4") int on_connect(struct bpf_sock_addr *ctx)
{
  ctx->user_ip4 = ctx->user_ip4; /* a write, as that of a service's address */
  return 1;
}
SEC("cgroup/getpeername4") int on_name(struct bpf_sock_addr *ctx) { return 1; }
SEC("cgroup/post_bind4") int on_bind(struct bpf_sock *sk) { return 1; }
SEC("cgroup/sock_create") int on_create(struct bpf_sock *sk) { return 1; }
SEC("cgroup/sock_release") int on_release(struct bpf_sock *sk) { return 1; }
"""
HOOKS = {
    "connect4": "on_connect",
    "getpeername4": "on_name",
    "post_bind4": "on_bind",
    "sock_create": "on_create",
    "sock_release": "on_release",
}


def come(scene):
    pins = scene.load(PROGRAMS)
    for kind, program in HOOKS.items():
        scene.attach(kind, f"{pins}/{program}")


def go(scene):
    pins = scene.load(PROGRAMS)
    for kind, program in HOOKS.items():
        scene.detach(kind, f"{pins}/{program}")
