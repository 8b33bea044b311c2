"""Edges by source: rows of edges, which a loop over sources finds as edges lie, or sorted by their sources.

Takes: a KernelSpec. Gives: the text that finds them. Runs once per function.
Edges lie in the order of their destinations, so that a loop over sources reads their rows from all over memory, a cache
line for a few numbers. Which rows are sorted is decided at each call (``runtime/moved_rows.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from vgraph.fusion.text import block
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Value

WORD = "by_source"  # a bit for each of ``KernelSpec.by_source``; behind all other arguments


def declared(spec: KernelSpec, word: Callable[[str], str]) -> str:
    """Which rows are sorted; nothing where a kernel reads none."""
    bits = (f"({word(WORD)} >> {place} & 1) != 0" for place in range(len(spec.by_source)))
    return block(f"const bool by{v.id} = {bit};" for v, bit in zip(spec.by_source, bits, strict=True))


def edge_row(spec: KernelSpec, value: Value, place: str, edge: str) -> str:
    """The number of an edge's row of a load: ``place`` among edges by source, ``edge`` among edges as they lie."""
    return f"(by{value.id} ? {place} : {edge})" if value in spec.by_source else edge
