"""``python -m vgraph.compat --check``: what a program written for DGL lacks, told before it runs.

Takes: files of Python. Gives: lines that name what is absent. Runs once per process; no line of the program does.
"""

from vgraph.compat.check.absences import Absence, absences_in, report

__all__ = ["Absence", "absences_in", "report"]
