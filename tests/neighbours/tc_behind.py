# Cilium #17193, #41393
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs of tc behind the agent's (tcx), which let all packets on."""
from tc_in_front import come, go

__all__ = ["come", "go"]
PATH = "tcp"
BYPASS = False
KNOWN = {"zerocopy": "plain TCP beside it is not always told that its data has left"}
