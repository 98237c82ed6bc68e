# No report: what Linux' samples/bpf/tcp_*_kern.c do
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A tuner of TCP: buffers, windows and times of each socket (TCP-BPF)."""
PATH = "smcd"
PROGRAMS = """
SEC("sockops") int tune(struct bpf_sock_ops *ctx)
{
  int size = 200000, clamp = 100;

  switch (ctx->op) {
  case BPF_SOCK_OPS_TIMEOUT_INIT:
    ctx->reply = 300; /* jiffies */
    break;
  case BPF_SOCK_OPS_RWND_INIT:
    ctx->reply = 40;
    break;
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
  case BPF_SOCK_OPS_TCP_LISTEN_CB:
    bpf_setsockopt(ctx, 1, 7, &size, sizeof(size));
    bpf_setsockopt(ctx, 1, 8, &size, sizeof(size));
    break;
  case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
  case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
    bpf_setsockopt(ctx, 1, 7, &size, sizeof(size));
    bpf_setsockopt(ctx, 6, 1002, &clamp, sizeof(clamp)); /* TCP_BPF_SNDCWND_CLAMP */
    break;
  }
  return 1;
}
"""


def come(scene):
    pins = scene.load(PROGRAMS)
    scene.attach("sock_ops", f"{pins}/tune")


def go(scene):
    pins = scene.load(PROGRAMS)
    scene.detach("sock_ops", f"{pins}/tune")
