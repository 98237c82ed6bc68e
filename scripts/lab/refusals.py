# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Kernels that refuse: an agent with tests/shims/refuse.c in front of bpf(2), which answers some calls with an error.

    host.start_agent(command=refusals.command("programs syscall"))
"""
import os

from lab.basics import BUILD

SHIM = os.path.join(BUILD, "tests", "libsmc-test-refuse.so")

# A feature that the agent needs of the kernel -> the words of refuse.c; their numbers are those of <linux/bpf.h>.
REFUSALS = {
    "programs `sched_cls`": "load:3",
    "programs `sock_ops`": "load:13",
    "programs `sk_lookup`": "load:30",
    "links `sock_ops`": "link:3",
    "links `sk_lookup`": "link:36",
    "links `tcx`": "link:46 link:47",
    "programs `syscall`": "load:31",
    "`BPF_PROG_TEST_RUN`": "run",
    "`bpf_for_each_map_elem`": "helper:164",
    "`bpf_probe_read_kernel`": "helper:113 helper:4",
    "programs `sk_msg`": "load:16",
    "programs `tracing`, `tp_btf`": "load:26:23",
    "programs `tracing`, `iter`": "load:26:28",
    "programs `tracing`, `fentry`": "load:26:24",
    "programs `lsm`": "load:29",
    "attaching `sk_msg` to a map": "attach:7",
    "links `tp_btf`": "link:23",
    "links `iter`": "link:28",
    "links `fentry`": "link:24",
    "links `lsm`": "link:27",
    "maps `ringbuf`": "map:27",
    "maps `sk_storage`": "map:24",
    "maps `sockmap`": "map:15",
    "maps `sockhash`": "map:18",
}


def preloaded(words):
    # The shim is loaded before the sanitizer's library.
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return ["env", f"LD_PRELOAD={SHIM}", f"SMC_REFUSE={words}", f"ASAN_OPTIONS={sanitizer}"]


def command(what):
    """The command that runs an agent whose kernel refuses this feature."""
    return preloaded(REFUSALS[what])


def late(seconds):
    """The command that runs an agent whose probe of the bypass receives nothing for so many seconds."""
    return preloaded(f"late:{seconds}")


def left_out(agent):
    """{program or helper that the agent has left out: the function that is lost}"""
    return {one["program"]: one["lost"] for one in agent.status()["left_out"]}
