# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs one part of the tests in virtual machines, and once more if a machine's own kernel panicked meanwhile.

    run.py PART_test

Linux 6.12 was seen to panic in net_rx_action() below rxe_xmit_packet(), in QEMU without KVM, under load, with no SMC
function in its stack. A panic with "smc" in its stack is not tried again.
"""
import re
import subprocess
import sys

PANIC = re.compile(r"Call Trace:.*?Kernel panic - not syncing.*?\n", re.DOTALL)


def run(part):
    """Runs a part; its exit code, and its output, which is also shown as it comes."""
    said = []
    command = [sys.executable, "-B", "-m", "unittest", "-v", part]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return process.returncode, "".join(said)


def foreign_panic(said):
    """The last lines of a panic that SMC has no part in; None: there was none."""
    for panic in PANIC.findall(said):
        trace = panic.split("Modules linked in")[0]
        if "smc" not in trace:
            return panic[-300:]
    return None


code, said = run(sys.argv[1])
if code != 0 and (panic := foreign_panic(said)):
    print(f"--- a machine's kernel panicked, with nothing of SMC in its stack: once more\n{panic}", flush=True)
    code, _ = run(sys.argv[1])
sys.exit(code)
