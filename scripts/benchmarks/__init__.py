# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The parts of scripts/bench: scenes (namespaces.py, machines.py), measurements (cases.py, counts.py), the machine
(facts.py), and what is made of them: the picture (plot.py), tables in pages (page.py)."""
