# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The ratios as a picture."""

TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]


def plot(rows, path):
    """Each ratio with its range, a colour a path; 1 is the baseline."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "smc-agent"})
    from matplotlib import pyplot

    names = [f"{r['path']} ({r['variant']}): {r['case']}" for r in rows]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(r["path"] for r in rows))}
    figure, axes = pyplot.subplots(figsize=(10, 0.28 * len(rows) + 1))
    at = range(len(rows))
    axes.hlines(at, [r["lowest"] for r in rows], [r["highest"] for r in rows], color="lightgrey", linewidth=5)
    axes.scatter([r["ratio"] for r in rows], at, c=[colours[r["path"]] for r in rows], zorder=2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(list(at), names)
    axes.invert_yaxis()
    axes.set_xlabel("times the baseline: TCP, or the kernel's net/smc for smcr (median and range; more is better)")
    axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
