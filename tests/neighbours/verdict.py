# OBI #2580 (its work-around): a verdict program that lets all pass
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A tracer whose sockmap also has a verdict program (OBI, FIONREAD)."""
from lab.basics import sh

PATH = "smcd"
CASES = False  # see tracer.py
LOSES = True  # the kernel forgets what is queued for a socket when it leaves the map
PROGRAMS = """
struct { __uint(type, BPF_MAP_TYPE_SOCKHASH); __uint(max_entries, 4096); __type(key, __u64); __type(value, __u32); }
    socks SEC(".maps");
SEC("sockops") int add(struct bpf_sock_ops *ctx)
{
  __u64 cookie = bpf_get_socket_cookie(ctx);

  if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
    bpf_sock_hash_update(ctx, &socks, &cookie, BPF_NOEXIST);
  return 1;
}
SEC("sk_skb") int pass(struct __sk_buff *skb) { return SK_PASS; }
"""


def settle(scene, cgroups):
    pins = scene.load(PROGRAMS)
    sh("bpftool", "prog", "attach", "pinned", f"{pins}/pass", "skb_verdict", "pinned", f"{pins}/socks")
    for cgroup in cgroups:
        scene.attach("sock_ops", f"{pins}/add", cgroup)


def leave(scene, cgroups):
    for cgroup in cgroups:
        scene.detach("sock_ops", f"{scene.load(PROGRAMS)}/add", cgroup)
    scene.unload(PROGRAMS)


def come(scene):
    settle(scene, [scene.everybody])


def go(scene):
    leave(scene, [scene.everybody])
