# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Cases and their measurement: the agent's path, the baseline and other paths shown beside them, measured in turn."""
import os
import statistics
from dataclasses import dataclass

from lab.basics import test_program

PEER = test_program("smc-bench-peer")
OURS, BASELINE = "ours", "baseline"


@dataclass(frozen=True)
class Case:
    name: str
    what: str  # the mode of the program, and its size
    size: int
    unit: str
    higher: bool  # a higher value is better
    at_rest: int = 0  # connections that are held beside it

    def ratio(self, ours, other):
        return ours / other if self.higher else other / ours

    def cpu_us(self, value, used, seconds):
        """Microseconds of processor time per round trip, ten round trips at once, MB or connection; None: unknown."""
        count = {"roundtrip": 1e6 / value, "ten": 1e6 / value, "stream": value * 1e3, "connect": value}.get(self.what)
        return used * 1e6 / (count * seconds) if count else None


CASES = [
    Case("64 B round trip", "roundtrip", 64, "us", False),
    Case("4 KiB round trip", "roundtrip", 4096, "us", False),
    Case("64 KiB stream", "stream", 65536, "GB/s", True),
    Case("256 KiB stream", "stream", 262144, "GB/s", True),
    Case("64 B beside four streams", "crowded", 64, "us", False),
    Case("connections", "connect", 1, "1/s", True),
]
CROWD = [
    Case("64 B beside four streams, mean", "crowded-mean", 64, "us", False),
    Case("four streams beside 64 B", "crowded-streams", 64, "GB/s", True),
]
# Ten connections at once, each with a round trip.
AT_REST = [Case(f"ten 64 B round trips beside {n:,}", "ten", 64, "us", False, n) for n in (100, 1000, 1700)]
FIRST_CONTACT = Case("first contact", "contact", 1, "ms", False)
SUBSEQUENT_CONTACT = Case("subsequent contact", "contact", 1, "ms", False)


class Scene:
    """A place where cases are measured: prepare() comes before them, check() after them."""

    path = variant = baseline_is = ""
    beside = ()  # names of other ways that are measured, too
    cores = ("one core", "a core each")
    cases = CASES

    def prepare(self):
        raise NotImplementedError

    def check(self):
        """Raises if connections took another path."""
        raise NotImplementedError

    def pin(self, cores):
        pass

    def before(self, case):
        """Called before each round."""

    def once(self, which, case, cores, seconds):
        """Measures once: the value, and the seconds of processor time that it took."""
        raise NotImplementedError


def processor_seconds():
    """Seconds that the machine's processors were busy since its start."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def middle(values):
    return None if None in values else round(statistics.median(values), 2)


def measure(scene, case, cores, options):
    ways = (OURS, BASELINE, *scene.beside)
    values, cpu = {way: [] for way in ways}, {way: [] for way in ways}
    for number in range(options.rounds):
        scene.before(case)
        for way in ways if number % 2 else ways[::-1]:
            value, used = scene.once(way, case, cores, options.seconds)
            values[way].append(value)
            cpu[way].append(case.cpu_us(value, used, options.seconds))
    ratios = sorted(map(case.ratio, values[OURS], values[BASELINE]))
    row = {
        "path": scene.path,
        "variant": scene.variant,
        "case": f"{case.name}, {cores}",
        "unit": case.unit,
        "ours": round(statistics.median(values[OURS]), 4),
        "baseline": round(statistics.median(values[BASELINE]), 4),
        "baseline_is": scene.baseline_is,
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(ratios[0], 3),
        "highest": round(ratios[-1], 3),
        "cpu_us": middle(cpu[OURS]),
        "baseline_cpu_us": middle(cpu[BASELINE]),
        "beside": {
            way: {
                "value": round(statistics.median(values[way]), 4),
                "ratio": round(statistics.median(map(case.ratio, values[OURS], values[way])), 3),
            }
            for way in scene.beside
        },
    }
    print(as_text(row), flush=True)
    return row


HEAD = (
    f"{'path':19} {'case':43}{'ours':>11} {'baseline':>11} {'unit':5}{'ratio':>7} "
    f"{'(lowest to highest)':20} CPU us, and the baseline's; beside it"
)


def as_text(row):
    spent = [f"{value:>9}" if value else f"{'-':>9}" for value in (row["cpu_us"], row["baseline_cpu_us"])]
    beside = [f"{entry['ratio']:.2f}x of {name}" for name, entry in row["beside"].items()]
    path = f"{row['path']} ({row['variant']})"
    return (
        f"{path:19} {row['case']:43}{row['ours']:>11,.2f} {row['baseline']:>11,.2f} "
        f"{row['unit']:5}{row['ratio']:>6.2f}x {'(%.2f to %.2f)' % (row['lowest'], row['highest']):20}"
        + " ".join([*spent, *beside])
    )


def measure_all(scene, options):
    """Prepares one scene and returns its rows."""
    scene.prepare()
    rows = []
    for cores in scene.cores:
        scene.pin(cores)
        for case in scene.cases:
            if options.case in f"{case.name}, {cores}":
                rows.append(measure(scene, case, cores, options))
    if rows:
        scene.check()
    return rows
