# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The command line of a script: its help names the exit codes, and a mistake is one line and exit code 2."""
import argparse
import os
import subprocess
import sys

from lab.basics import ROOT


class Arguments(argparse.ArgumentParser):
    """`setup`: the script builds first (scripts/setup), if it was called by its name and not as a part of a test."""

    def __init__(self, prog, description, exit_codes, setup=False):
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"Exit codes: {exit_codes}; 2 for a wrong argument.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if setup:
            self.add_argument("--set-up", action="store_true", help=argparse.SUPPRESS)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def set_up(*options):
    """Installs what is missing, and builds. If that fails, this program ends with status 1."""
    try:
        if subprocess.run([os.path.join(ROOT, "scripts", "setup"), *options]).returncode == 0:
            return
    except KeyboardInterrupt:
        pass
    sys.exit("scripts/setup has failed")
