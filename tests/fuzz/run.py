#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Fuzzes one decoder, or the shared area, for SMC_FUZZ_SECONDS (default 5), starting from the kept corpus.

An input that breaks something is left in build/fuzz/artifacts. --merge adds to the kept corpus what a longer run found,
as far as it reaches new code."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("SMC_BUILD", os.path.join(HERE, "..", "..", "build"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="clc_proposal, clc_accept, clc_decline, llc, cdc, tcp_option, capture, ivshmem")
    parser.add_argument("--merge", action="store_true", help="put what was found into the kept corpus")
    options = parser.parse_args()
    seconds = int(os.environ.get("SMC_FUZZ_SECONDS", "5"))
    program = os.path.join(BUILD, "fuzz", "fuzz_" + options.target)
    kept = os.path.join(HERE, "corpus", options.target)
    artifacts = os.path.join(BUILD, "fuzz", "artifacts")
    os.makedirs(artifacts, exist_ok=True)
    limits = ["-max_len=" + ("65536" if options.target == "capture" else "8300"), "-rss_limit_mb=2048", "-timeout=10"]
    with tempfile.TemporaryDirectory(prefix="smc-fuzz-") as found:
        command = [
            program,
            *limits,
            f"-max_total_time={seconds}",
            "-print_final_stats=1",
            f"-artifact_prefix={artifacts}/{options.target}-",
            found,
            kept,
        ]
        run = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", timeout=seconds + 120)
        lines = run.stderr.splitlines()
        print("\n".join(lines[-60:] if run.returncode else [l for l in lines if l.startswith(("stat::", "Done"))]))
        if run.returncode == 0 and options.merge:
            with tempfile.TemporaryDirectory(prefix="smc-fuzz-") as merged:
                subprocess.run(
                    [program, *limits, "-merge=1", merged, kept, found], check=True, stderr=subprocess.DEVNULL
                )
                shutil.rmtree(kept)
                shutil.copytree(merged, kept)
            print(f"kept corpus: {len(os.listdir(kept))} inputs")
    return 1 if run.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
