# Merbridge #100; Cilium #6013, #11039
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A redirector of what sockets of the node send each other (Merbridge, Cilium)."""
from lab.basics import sh

PATH = "smcd"
BYPASS = False
CASES = False  # see tracer.py
PROGRAMS = """
struct ends { __u32 local, remote, local_port, remote_port; };
struct { __uint(type, BPF_MAP_TYPE_SOCKHASH); __uint(max_entries, 4096); __type(key, struct ends);
         __type(value, __u32); } socks SEC(".maps");
SEC("sockops") int add(struct bpf_sock_ops *ctx)
{
  struct ends ends = {ctx->local_ip4, ctx->remote_ip4, ctx->local_port, bpf_ntohl(ctx->remote_port)};

  if (ctx->family == 2 &&
      (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB))
    bpf_sock_hash_update(ctx, &socks, &ends, BPF_NOEXIST);
  return 1;
}
SEC("sk_msg") int redirect(struct sk_msg_md *message)
{
  struct ends peer = {message->remote_ip4, message->local_ip4, bpf_ntohl(message->remote_port), message->local_port};

  bpf_msg_redirect_hash(message, &socks, &peer, BPF_F_INGRESS);
  return SK_PASS;
}
"""


def of(node):
    """Each node has its own: the nodes of a laboratory share a kernel, and must not find each other's sockets."""
    return f"// {node.name}{PROGRAMS}"


def come(scene):
    for node in scene.hosts:
        pins = scene.load(of(node))
        sh("bpftool", "prog", "attach", "pinned", f"{pins}/redirect", "msg_verdict", "pinned", f"{pins}/socks")
        scene.attach("sock_ops", f"{pins}/add", node.cgroup)


def go(scene):
    for node in scene.hosts:
        scene.detach("sock_ops", f"{scene.load(of(node))}/add", node.cgroup)
        scene.unload(of(node))
