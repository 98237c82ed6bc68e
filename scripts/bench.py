# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Ratios against a baseline, measured alternately in one run: median, and lowest to highest. Above 1 is better than the
baseline, whatever the unit. Numbers are of the machine at hand; only the ratios are worth comparing. CPU is what the
whole machine used (with --vm, both QEMU processes), for a round trip, a MB or a connection. The first lines
describe the machine, because ratios depend on the cost of a system call, a wake-up and a copy. The last line is the
steal time, of all processors together.

"one core" puts everything on one processor, agents included; "a core each" puts the client's end on one and the
server's on another.

Between network namespaces; the baseline is TCP with cubic, beside it is TCP with the system's default:

  plain    connections that are not accelerated. nobody: there is no agent, so this is the noise of the measurement.
           hooks: no agent either, but filters on the client's device that do nothing, where the agent's programs are:
           the least cost of any filter. asked: the server's node has no agent, so every connection asks. denied: the
           policy leaves them alone.
  tuned    within one node, with the system's default congestion control, as the baseline. default: two pods of one
           agent. lo: over 127.0.0.1.
  bypass   within one node: two pods of one agent, and local.bypass "force". Both sides use poll(), and each connection
           but those of "connections" is used for a second before it is measured.
  smcd     SMC-D between two agents of one kernel. local: the cases of all paths. short-lived: connections that the
           agents leave to TCP. at-rest: ten busy connections beside many at rest; the baseline is SMC-D with none.
  ivshmem  SMC-D as between virtual machines. file: over a file instead of a BAR.

With --vm, between virtual machines that QEMU emulates, one processor each; they say how much work something is, not how
fast hardware would do it:

  smcr     over soft-RoCE; the baseline is the kernel's own net/smc, beside it is TCP. first contact: there is no link
           group.
  ivshmem  vm: memory that the machines share; a sleeping agent looks now and then. doorbells: interrupts wake it.
           The baseline is TCP over virtio-net.
"""
import importlib.util
import json
import subprocess
import sys

from benchmarks import cases, counts, facts, machines, namespaces, page, plot, timeline
from lab.arguments import Arguments, set_up
from lab.basics import test_program

CODEC = test_program("smc-bench-codec")


def measure_codec():
    rows = []
    print(f"{'case':25} {'ns':>8} {'allocations':>12}")
    for line in subprocess.run([CODEC], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        case, nanoseconds, allocations = line.split("\t")
        rows.append(
            {"path": "codec", "case": case, "unit": "ns", "ours": float(nanoseconds), "allocations": int(allocations)}
        )
        print(f"{case:25} {nanoseconds:>8} {allocations:>12}")
    return rows


def named(kind):
    return f"{kind.path}-{kind.variant}"


def options_of(arguments):
    parser = Arguments("scripts/bench", __doc__, "0 if all was measured; 1 if something failed", setup=True)
    parser.add_argument("--vm", action="store_true", help="between virtual machines")
    parser.add_argument("--path", help="only this one, as in smcd or tuned-lo")
    parser.add_argument("--case", default="", help='only those whose name has this in it, as in "round trip, one core"')
    parser.add_argument("--codec", action="store_true", help="the wire library, no network")
    parser.add_argument("--counts", action="store_true", help="system calls, switches and BPF, and no ratios")
    parser.add_argument(
        "--timeline",
        metavar="CASE",
        help="print one operation of this case (part of its name is enough), microsecond by microsecond; with --plot"
        " also draw it; over --path, by default smcd-local",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument(
        "--also", metavar="FILE", action="append", default=[], help="results of earlier runs, for --plot and --page"
    )
    parser.add_argument("--nothing", action="store_true", help="measure nothing, take what --also has")
    parser.add_argument("--plot", metavar="FILE", help="also draw them there, as an SVG (python3-matplotlib)")
    parser.add_argument(
        "--page", metavar="FILE", action="append", default=[], help="also write tables into it, as Markdown"
    )
    parser.add_argument("--rounds", type=int, help="of measurements (default 15; with --vm 5)")
    parser.add_argument("--seconds", type=float, help="length of each (default 0.3; with --vm 2)")
    options = parser.parse_args(arguments)
    if options.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot: python3-matplotlib is not installed")
    where = machines if options.vm else namespaces
    options.measure = where.measure
    options.kinds = [k for k in where.SCENES if options.path in (None, k.path, named(k))]
    if not options.kinds:
        names = sorted({k.path for k in where.SCENES} | {named(k) for k in where.SCENES})
        parser.error(f"--path: {options.path} is none of {', '.join(names)}")
    if options.nothing and (options.json or not options.also):
        parser.error("--nothing: only with --also, and without --json")
    if options.counts and options.vm:
        parser.error("--counts: not with --vm")
    if options.timeline is not None:
        if options.vm or options.counts or options.codec or options.nothing or options.json or options.page:
            parser.error("--timeline: only with --path, --plot and --seconds")
        options.kinds = options.kinds if options.path else [namespaces.SmcD]
        if not timeline.case_of(options.kinds[0], options.timeline):
            parser.error(f"--timeline: {options.timeline} is no part of a case's name, or of one beside others")
    options.rounds = options.rounds or (5 if options.vm else 15)
    options.seconds = options.seconds or (2.0 if options.vm else 0.3)
    return options


def measure(options):
    """What the machine is, and a row for each case."""
    machine, before = facts.measure(), facts.steal_seconds()
    facts.print_facts(machine)
    if options.codec:
        rows = measure_codec()
    elif options.counts:
        rows = [row for kind in options.kinds for row in counts.measure(kind, options)]
    else:
        print(cases.HEAD)
        rows = [row for kind in options.kinds for row in options.measure(kind, options)]
    machine["steal time"] = f"{facts.steal_seconds() - before:.1f} s"
    print(f"steal time: {machine['steal time']}")
    return machine, rows


def main():
    options = options_of(sys.argv[1:])
    if options.set_up and not options.nothing:
        set_up(*(["--tests"] if options.vm else []))
    if options.timeline is not None:
        timeline.measure(options.kinds[0], options)
        return 0
    machine, rows = {}, []
    if not options.nothing:
        machine, rows = measure(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": machine, "results": rows}, file, indent=2)
    for path in options.also:
        with open(path) as file:
            before = json.load(file)
        machine = machine or before.get("machine", {})
        rows += before["results"]
    for path in options.page:
        page.write(path, machine, rows)
    plotted = [row for row in rows if "ratio" in row]
    if options.plot and plotted:
        plot.plot(plotted, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
