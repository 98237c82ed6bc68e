# Polycube #202; Merbridge #171
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""XDP in its generic mode, which sees each packet."""
PATH = "smcd"
KNOWN = {"zerocopy": "plain TCP beside it is not always told that its data has left"}
PROGRAMS = """
SEC("xdp") int look(struct xdp_md *ctx)
{
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

  return data + 14 > end ? XDP_DROP : XDP_PASS;
}
"""


def come(scene):
    pins = scene.load(PROGRAMS)
    link = lambda node: ["ip", "link", "set", node.device, "xdpgeneric", "pinned", f"{pins}/look"]
    scene.both(lambda node: node.run(link(node), check=True))


def go(scene):
    scene.both(lambda node: node.run(["ip", "link", "set", node.device, "xdpgeneric", "off"], check=True))
