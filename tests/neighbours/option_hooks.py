# No report: hooks that Linux' own selftests of sockopt attach
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Hooks of the cgroup see each getsockopt() and setsockopt(), of applications and agents."""
PATH = "smcd"
PROGRAMS = """
SEC("cgroup/getsockopt") int on_get(struct bpf_sockopt *ctx)
{
  ctx->optlen = 0; /* the kernel's own answer, of any size */
  return 1;
}
SEC("cgroup/setsockopt") int on_set(struct bpf_sockopt *ctx)
{
  ctx->optlen = 0;
  return 1;
}
"""


def come(scene):
    pins = scene.load(PROGRAMS)
    scene.attach("getsockopt", f"{pins}/on_get")
    scene.attach("setsockopt", f"{pins}/on_set")


def go(scene):
    pins = scene.load(PROGRAMS)
    scene.detach("getsockopt", f"{pins}/on_get")
    scene.detach("setsockopt", f"{pins}/on_set")
