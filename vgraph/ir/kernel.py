"""KernelSpec: one fused loop over vertices and their edges.

Takes: nothing (a plain value). Gives: what to load, compute, reduce and store; tempo: once a function.
Source: Cavs section 3.5 (kernel fusion), extended across gathers and reductions.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.ir.program import Op, Value


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """Ops that run in one pass: for every vertex row, loops over its edges and over features.

    Every result has rows of ``shape``; ``loads`` come from outside, ``stores`` are kept, all else
    lives in registers or in one row of scratch. ``is_source``: the loop is over sources of edges.
    """

    ops: tuple[Op, ...]
    loads: tuple[Value, ...]
    stores: tuple[Value, ...]
    shape: tuple[int, ...]
    is_source: bool = False


@dataclass(frozen=True, eq=False)
class Unit:
    """A step of a phase: one operator of the library, or one kernel."""

    op: Op | None = None
    kernel: KernelSpec | None = None
