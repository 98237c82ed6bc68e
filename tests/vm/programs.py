# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs that tests run in the machines."""
import os

from lab.basics import BUILD

HERE = os.path.dirname(os.path.abspath(__file__))
TCP = ["python3", os.path.join(HERE, "peer.py")]  # an ordinary program
NATIVE = [*TCP, "--smc"]  # the same over AF_SMC
PRELOAD = os.path.join(BUILD, "tests", "libsmc-test-preload.so")  # makes other programs use AF_SMC
