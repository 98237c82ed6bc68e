# DPVS #928
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A writer of TCP options: 8 bytes in every packet, as TOA has."""
PATH = "tcp"  # SYNs have no space for both options of the agent any more
BYPASS = False
PROGRAMS = """
SEC("sockops") int write_option(struct bpf_sock_ops *ctx)
{
  unsigned char option[8] = {253, 8, 0x12, 0x34, 1, 2, 3, 4};

  switch (ctx->op) {
  case BPF_SOCK_OPS_TCP_CONNECT_CB:
  case BPF_SOCK_OPS_TCP_LISTEN_CB:
    bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
    break;
  case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
    bpf_reserve_hdr_opt(ctx, sizeof(option), 0);
    break;
  case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
    bpf_store_hdr_opt(ctx, option, sizeof(option), 0);
    break;
  }
  return 1;
}
"""


def come(scene):
    pins = scene.load(PROGRAMS)
    scene.attach("sock_ops", f"{pins}/write_option")


def go(scene):
    pins = scene.load(PROGRAMS)
    scene.detach("sock_ops", f"{pins}/write_option")
