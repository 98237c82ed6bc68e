# No report: programs of sockops that set their callback flags without those of others
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A program of sockops that takes the callback flags of others."""
PATH = "tcp"  # no packet of an agent can carry option 254
PROGRAMS = """
SEC("sockops") int take(struct bpf_sock_ops *ctx)
{
  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
  case BPF_SOCK_OPS_TCP_LISTEN_CB:
  case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
    break;
  }
  return 1;
}
"""


def come(scene):
    scene.attach("sock_ops", f"{scene.load(PROGRAMS)}/take")


def go(scene):
    scene.detach("sock_ops", f"{scene.load(PROGRAMS)}/take")
