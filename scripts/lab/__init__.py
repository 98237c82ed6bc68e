# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The laboratory: nodes (network namespaces), virtual machines, and agents in either. Demo, benchmarks and tests drive
the same one. To be found by Python as `lab`: CTest sets PYTHONPATH, and programs in scripts/ have it beside them.

    basics     paths of what was built, waiting, commands
    nodes      Lab and Node: a network namespace, a cgroup and an agent each
    machines   VmLab and Machine: QEMU with soft-RoCE
    kernels    of Debian, for machines; initramfs makes what they boot, guest what obeys in them
    agent      an agent in either, and what it says of itself
    netsmc     the kernel's own SMC as a peer
    captures   what smcctl reads out of a capture
    rawtcp     TCP peers that no kernel would be
    tshark     what it says of the same capture
"""
