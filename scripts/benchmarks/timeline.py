# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""One operation of a case, microsecond by microsecond: who runs on each processor, and in which system call. Recording
makes it longer than it is by itself."""
import contextlib
import os
import struct
from dataclasses import dataclass

from lab.nodes import Lab

from .cases import OURS
from .tracing import Tracing, call_names

CALL, RETURN, SWITCH, SOFTIRQ, SOFTIRQ_END = range(5)  # kinds of events, as in timeline.bpf.c
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
IDLE, OTHERS = "idle", "others"
BEGINS = {"roundtrip": ("sendto", "sendmsg", "write"), "connect": ("connect",)}  # the call that begins an operation
STREAM_US = 1000  # of a stream this much is shown
COLOURS = {"client": "C0", "client's agent": "C1", "server's agent": "C2", "server": "C3", OTHERS: "0.6"}


@dataclass(frozen=True)
class Event:
    us: float
    process: int
    thread: int
    processor: int
    kind: int
    value: int


@dataclass(frozen=True)
class Box:
    """What ran on a processor for a while: `what` is a system call, a softirq, or "" for the program itself."""

    processor: int
    begin: float
    end: float
    who: str
    what: str


def events_of(tracing):
    found = [struct.unpack("QIIIHH", value) for _, value in tracing.entries("events", 4, 24)]
    return sorted((Event(ns / 1000, *rest) for ns, *rest in found if ns), key=lambda event: event.us)


def names_of(scene):
    """What processes are called in the picture. The client has ended by now: see client_of()."""
    found = dict(zip((agent.pid for agent, _ in scene.agents), ("client's agent", "server's agent")))
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline") as file:
            words = file.read().split("\0")
            if words[0].endswith("smc-bench-peer") and "serve" in words:
                found[int(process)] = "server"
    return found


def client_of(events, names, begins):
    """The process that made most of the calls that begin operations, of those that have no name yet."""
    counts = {}
    for event in events:
        if event.kind == CALL and event.process not in names and event.value in begins:
            counts[event.process] = counts.get(event.process, 0) + 1
    return max(counts, key=counts.get)


def operation(events, client, begins, case):
    """The begin and the end of the operation that took as long as half of them took at most."""
    starts = [event.us for event in events if (event.kind, event.process) == (CALL, client) and event.value in begins]
    if case.what == "stream":
        middle = starts[len(starts) // 2]
        return middle, middle + STREAM_US
    spans = sorted((after - before, before) for before, after in zip(starts, starts[1:]))
    length, begin = spans[len(spans) // 2]
    return begin, begin + length


def boxes_of(events, names, calls):
    """What ran on each processor, from each of its events to the next one."""
    running, softirq, call_of, last, found = {}, {}, {}, {}, []
    for event in events:
        at = event.processor
        if at in running and event.us > last[at]:
            process, thread = running[at]
            who = names.get(process, IDLE if process == 0 else OTHERS)
            what = softirq.get(at) or (call_of.get(thread, "") if who != OTHERS else "")
            found.append(Box(at, last[at], event.us, who, what))
        last[at] = event.us
        running[at] = event.process, event.thread
        if event.kind == CALL:
            call_of[event.thread] = calls.get(event.value, str(event.value))
        elif event.kind == RETURN:
            call_of[event.thread] = ""
        elif event.kind == SOFTIRQ:
            softirq[at] = SOFTIRQS[event.value]
        elif event.kind == SOFTIRQ_END:
            softirq[at] = ""
    return found


def clipped(boxes, begin, end):
    """What of the boxes is in the operation, with times from its begin. Neighbours that are the same become one."""
    found = []
    for box in sorted(boxes, key=lambda box: (box.processor, box.begin)):
        one = Box(box.processor, max(box.begin, begin) - begin, min(box.end, end) - begin, box.who, box.what)
        if one.end <= one.begin:
            continue
        before = found[-1] if found else None
        if before and (before.processor, before.end, before.who, before.what) == (
            one.processor,
            one.begin,
            one.who,
            one.what,
        ):
            one = Box(one.processor, found.pop().begin, one.end, one.who, one.what)
        found.append(one)
    return found


def print_boxes(boxes):
    print(f"{'us':>9} {'takes':>8} processor  who, and in which system call or softirq")
    for box in sorted(boxes, key=lambda box: box.begin):
        if box.who != IDLE:
            print(f"{box.begin:>9.1f} {box.end - box.begin:>8.1f} {box.processor:>9}  {box.who}: {box.what or '-'}")


def draw(boxes, title, path):
    """A lane for each processor: below, who runs; above, system calls and softirqs, which are the kernel's time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "smc-agent"})
    from matplotlib import patches, pyplot

    processors = sorted({box.processor for box in boxes if box.who != IDLE})
    length = max(box.end for box in boxes)
    figure, axes = pyplot.subplots(figsize=(14, 1.8 * len(processors) + 1.2))
    for box in boxes:
        if box.who == IDLE or box.processor not in processors:
            continue
        lane, width = processors.index(box.processor), box.end - box.begin
        colour = COLOURS[box.who]
        axes.broken_barh([(box.begin, width)], (lane, 0.3), color=colour, linewidth=0)
        if box.what:
            axes.broken_barh([(box.begin, width)], (lane + 0.32, 0.2), facecolor=colour, alpha=0.5, edgecolor="white")
            if width > length / 120:
                middle = box.begin + width / 2
                axes.text(middle, lane + 0.54, box.what, rotation=90, fontsize=6, ha="center", va="bottom")
    axes.set_xlim(0, length)
    axes.set_ylim(0, len(processors))
    axes.set_yticks([lane + 0.25 for lane in range(len(processors))], [f"processor {number}" for number in processors])
    axes.set_xlabel("us; below: who runs; above: its time in the kernel, by system call or softirq")
    axes.set_title(title)
    shown = [who for who in COLOURS if any(box.who == who for box in boxes)]
    handles = [patches.Patch(color=COLOURS[who], label=who) for who in shown]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(shown))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def case_of(kind, name):
    """The first case of a scene with this in its name, and its processors. Nothing: there is none that can be drawn."""
    for cores in kind.cores:
        for case in kind.cases:
            if name in f"{case.name}, {cores}" and (case.what in BEGINS or case.what == "stream"):
                return case, cores
    return None


def measure(kind, options):
    """Records a case, prints one operation of it, and draws that into --plot's file."""
    case, cores = case_of(kind, options.timeline)
    calls = call_names()
    with Lab("bench") as lab:
        scene = kind(lab)
        scene.prepare()
        scene.pin(cores)
        scene.once(OURS, case, cores, options.seconds)
        with Tracing("timeline.bpf.c") as tracing:
            scene.once(OURS, case, cores, options.seconds)
            tracing.detach()
            events, names = events_of(tracing), names_of(scene)
        scene.check()
    wanted = BEGINS.get(case.what, BEGINS["roundtrip"])
    begins = {number for number, name in calls.items() if name in wanted}
    client = client_of(events, names, begins)
    begin, end = operation(events, client, begins, case)
    boxes = clipped(boxes_of(events, {**names, client: "client"}, calls), begin, end)
    title = f"{scene.path} ({scene.variant}): {case.name}, {cores}: {end - begin:.1f} us"
    print(title)
    print_boxes(boxes)
    if options.plot:
        draw(boxes, title, options.plot)
