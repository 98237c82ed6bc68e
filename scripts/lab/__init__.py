# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The laboratory: nodes (network namespaces), virtual machines, and agents in either. Demo, benchmarks and tests all
use it. Python finds it as `lab`: CTest sets PYTHONPATH, and for programs in scripts/ the package is beside them.

    basics     paths of what was built, waiting, commands
    nodes      Lab and Node: a network namespace, a cgroup and an agent each
    machines   VmLab and Machine: QEMU with soft-RoCE
    kernels    Debian's kernels, for machines; they boot an initramfs (initramfs) and run the host's commands (guest)
    agent      an agent on a node or a machine, and what it reports
    netsmc     the kernel's own SMC as a peer
    captures   what smcctl reads out of a capture
    rawtcp     TCP peers that behave as no kernel does
    tshark     what tshark reads out of the same capture
"""
