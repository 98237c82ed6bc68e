# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What scripts/bench measures: where (namespaces.py, machines.py), what (cases.py), and how it is drawn (plot.py)."""
