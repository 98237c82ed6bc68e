# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Writes tables into Markdown pages (README.md, docs/performance.md), between <!-- bench: NAME --> and <!-- end -->."""
import re

# Without ("smcd", "at-rest"), whose baseline is not TCP.
PATHS = {
    ("plain", "nobody"): "plain, no agent",
    ("plain", "hooks"): "empty filters, no agent",
    ("plain", "asked"): "plain, the server was asked",
    ("plain", "denied"): "plain, denied by the policy",
    ("tuned", "default"): "tuned, two pods",
    ("tuned", "lo"): "tuned, over lo",
    ("bypass", "force"): "bypass, two pods",
    ("smcd", "local"): "SMC-D, two agents",
    ("smcd", "short-lived"): "short-lived, left to TCP",
    ("ivshmem", "file"): "SMC-D, ivshmem",
}
CORES = ("one core", "a core each")
# What README.md has of each path; docs/performance.md has everything.
SELECTED = {
    ("plain", "hooks"): ("64 B round trip", "connections"),
    ("plain", "asked"): ("64 B round trip", "connections"),
    ("plain", "denied"): ("64 B round trip", "64 KiB stream", "connections"),
    ("tuned", "default"): ("64 B round trip", "64 KiB stream", "256 KiB stream", "connections"),
    ("bypass", "force"): ("64 B round trip", "4 KiB round trip", "64 KiB stream", "connections"),
    ("smcd", "local"): None,  # all
    ("smcd", "short-lived"): None,
}
COUNTED = ("64 B round trip, one core", "64 KiB stream, one core", "connections, one core")
MARKED = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head, rows):
    return "\n".join(["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)])


def figure(value, unit):
    if unit == "GB/s" and value < 0.1:
        value, unit = value * 1000, "MB/s"
    return f"{value:.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"


def cell(row, ranges):
    between = f", {row['lowest']:.2f} to {row['highest']:.2f}" if ranges else ""
    return f"{row['ratio']:.2f} ({figure(row['ours'], row['unit'])}{between})"


def ratios(results, selected=None):
    """A line for each path and case; `selected`: the paths, and the cases of each."""
    found = {}
    for row in results:
        path, (case, cores) = (row["path"], row["variant"]), row["case"].rsplit(", ", 1)
        if path in PATHS and (selected is None or (path in selected and case in (selected[path] or [case]))):
            found.setdefault((path, case), {})[cores] = cell(row, selected is None)
    lines = [[PATHS[path], case, *(cells.get(cores, "-") for cores in CORES)] for (path, case), cells in found.items()]
    return table(["path", "case", *CORES], lines)


def calls(counts):
    """Calls and switches of one process."""
    total = sum(count for name, count in counts.items() if name != "switches")
    return f"{total:.1f}, {counts.get('switches', 0):.1f}"


def counted(results):
    """Calls and switches for each round trip, MB or connection, of one path."""
    lines = []
    for row in results:
        processes = [row["counts"].get(name, {}) for name in ("agent 1", "agent 2", "programs", "programs over TCP")]
        bpf = f"{sum(row['bpf_us'].values()):.1f} us"
        lines.append([row["case"], row["of"], *map(calls, processes), bpf])
    head = ["case", "for each", "client's agent", "server's agent", "programs", "programs over TCP"]
    return table([*head, "BPF programs"], lines)


def between_machines(results):
    """SMC-R beside the kernel's own net/smc and TCP."""
    lines = []
    for row in results:
        tcp = row["beside"].get("TCP", {}).get("value")
        figures = [figure(value, row["unit"]) if value else "-" for value in (row["ours"], row["baseline"], tcp)]
        ratio = f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"
        lines.append([row["case"].rsplit(", ", 1)[0], *figures, ratio])
    return table(["case", "agents", "kernel", "TCP", "agents to kernel"], lines)


def machine_table(machine):
    return table(["what", "value"], [[name, value] for name, value in machine.items()])


def write(path, machine, results):
    """`results`: rows of cases.measure() and counts.measure(). Tables without any row stay as they are."""
    with_ratio, with_counts = ([row for row in results if key in row] for key in ("ratio", "counts"))
    with_counts = [row for row in with_counts if (row["path"], row["variant"]) == ("smcd", "local")]
    tables = {
        "machine": lambda: machine_table(machine if with_ratio else {}),
        "counts": lambda: counted(with_counts),
        "ratios": lambda: ratios(with_ratio),
        "selection": lambda: ratios(with_ratio, SELECTED),
        "smcr": lambda: between_machines(row for row in with_ratio if row["path"] == "smcr"),
        "few_counts": lambda: counted(row for row in with_counts if row["case"] in COUNTED),
    }

    def filled(marked):
        made = tables[marked[2]]()
        return f"{marked[1]}{made}\n{marked[3]}" if made.count("\n") > 1 else marked[0]

    with open(path) as file:
        text = file.read()
    text = MARKED.sub(filled, text)
    with open(path, "w") as file:
        file.write(text)
