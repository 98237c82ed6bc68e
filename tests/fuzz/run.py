#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Fuzzes decoders, or the shared area, for SMC_FUZZ_SECONDS each (default 5), starting from the kept corpus.

An input that breaks something is left in build/fuzz/artifacts. --merge adds to the kept corpus what a longer run found,
as far as it reaches new code. --replay tries what is kept, and nothing else."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("SMC_BUILD", os.path.join(HERE, "..", "..", "build"))


LIMITS = ["-rss_limit_mb=2048", "-timeout=10"]


def longest(target):
    return f"-max_len={65536 if target == 'capture' else 8300}"


def program(target):
    return os.path.join(BUILD, "fuzz", "fuzz_" + target)


def replay(target, kept):
    """Runs the target once on every kept input; 0 if none breaks it."""
    command = [program(target), *LIMITS, longest(target), "-runs=0", kept]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", timeout=300)
    count = len(os.listdir(kept))
    print(f"{target}: {count} inputs" if run.returncode == 0 else "\n".join(run.stderr.splitlines()[-60:]))
    return 1 if run.returncode or count == 0 else 0


def fuzz(target, kept, merge):
    seconds = int(os.environ.get("SMC_FUZZ_SECONDS", "5"))
    artifacts = os.path.join(BUILD, "fuzz", "artifacts")
    os.makedirs(artifacts, exist_ok=True)
    limits = [longest(target), *LIMITS]
    with tempfile.TemporaryDirectory(prefix="smc-fuzz-") as found:
        command = [
            program(target),
            *limits,
            f"-max_total_time={seconds}",
            "-print_final_stats=1",
            f"-artifact_prefix={artifacts}/{target}-",
            found,
            kept,
        ]
        run = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", timeout=seconds + 120)
        lines = run.stderr.splitlines()
        print("\n".join(lines[-60:] if run.returncode else [l for l in lines if l.startswith(("stat::", "Done"))]))
        if run.returncode == 0 and merge:
            with tempfile.TemporaryDirectory(prefix="smc-fuzz-") as merged:
                subprocess.run(
                    [program(target), *limits, "-merge=1", merged, kept, found], check=True, stderr=subprocess.DEVNULL
                )
                shutil.rmtree(kept)
                shutil.copytree(merged, kept)
            print(f"kept corpus: {len(os.listdir(kept))} inputs")
    return 1 if run.returncode else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "target", nargs="+", help="clc_proposal, clc_accept, clc_decline, llc, cdc, tcp_option, capture, ivshmem"
    )
    parser.add_argument("--merge", action="store_true", help="put what was found into the kept corpus")
    parser.add_argument("--replay", action="store_true", help="only what is kept, each input once")
    options = parser.parse_args()
    kept = {target: os.path.join(HERE, "corpus", target) for target in options.target}
    if options.replay:
        return max(replay(*one) for one in kept.items())
    return max(fuzz(*one, options.merge) for one in kept.items())


if __name__ == "__main__":
    sys.exit(main())
