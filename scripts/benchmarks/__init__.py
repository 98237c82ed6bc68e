# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The parts of scripts/bench: scenes (namespaces.py, machines.py), measurements (cases.py), the picture (plot.py)."""
