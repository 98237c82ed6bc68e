# OBI #2580, #2827, #2975; Beyla #2941, #3025
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A tracer: new sockets are in its sockmap, with a sk_msg program (OBI, Beyla)."""
from lab.basics import sh

PATH = "smcd"
BYPASS = None
CASES = False  # a blocking recv() of a socket in a sockmap may return EAGAIN, also on plain TCP
SOCKMAP = """
struct { __uint(type, BPF_MAP_TYPE_SOCKHASH); __uint(max_entries, 4096); __type(key, __u64); __type(value, __u32); }
    socks SEC(".maps");
SEC("sockops") int add(struct bpf_sock_ops *ctx)
{
  __u64 cookie = bpf_get_socket_cookie(ctx);

  if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
    bpf_sock_hash_update(ctx, &socks, &cookie, BPF_NOEXIST);
  return 1;
}
"""
READS_MESSAGES = (
    "msg_verdict",
    """
SEC("sk_msg") int pass(struct sk_msg_md *message)
{
  bpf_msg_pull_data(message, 0, message->size < 1024 ? message->size : 1024, 0);
  return SK_PASS;
}
""",
)


def settle(scene, cgroups, program):
    """`program`: how it is attached to the sockmap, and its text."""
    kind, text = program
    pins = scene.load(SOCKMAP + text)
    sh("bpftool", "prog", "attach", "pinned", f"{pins}/pass", kind, "pinned", f"{pins}/socks")
    for cgroup in cgroups:
        scene.attach("sock_ops", f"{pins}/add", cgroup)


def leave(scene, cgroups, program):
    """Its map goes with the last reference, and sockets leave it."""
    _, text = program
    for cgroup in cgroups:
        scene.detach("sock_ops", f"{scene.load(SOCKMAP + text)}/add", cgroup)
    scene.unload(SOCKMAP + text)


def come(scene):
    settle(scene, [scene.everybody], READS_MESSAGES)


def go(scene):
    leave(scene, [scene.everybody], READS_MESSAGES)
