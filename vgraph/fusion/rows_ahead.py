"""Rows ahead: a kernel that makes rows which only the edges of another read becomes the first part of that one.

Takes: the Units of a phase. Gives: Units in order. Runs once per function.
Where features are taken in tiles, rows that edges read are copied tile by tile. What scales them (a degree, a mask of
a derivative) then does so on the way, and they are never stored whole
(docs/adr/0048-rows-are-scaled-on-their-way-into-tiles.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.moves import SegmentReduce
from vgraph.ir.program import Value
from vgraph.ir.row_tiles import is_apart, tiled_loads
from vgraph.ir.schedule import Phase


def join_rows_ahead(phase: Phase, units: Sequence[Unit], wanted: Iterable[int]) -> tuple[Unit, ...]:
    """A phase's units with pairs of such kernels as one; ``wanted``: ids of values that others need of it.

    In a loop, and where edges come in chunks, a kernel runs many times on the rows that another made once.
    """
    if phase.is_loop or phase.is_chunked:
        return tuple(units)
    readers = Counter(v.id for unit in units for v in _read(unit))
    readers.update(wanted)
    makers = {v.id: unit.kernel for unit in units if unit.kernel is not None for v in unit.kernel.stores}
    joined, gone = dict[int, KernelSpec](), set[int]()
    for unit in units:
        if unit.kernel is None:
            continue
        found = {id(makers[v.id]): makers[v.id] for v in tiled_loads(unit.kernel) if v.id in makers}
        ahead = next((one for one in found.values() if _can_be_ahead(one, unit.kernel, readers)), None)
        if ahead is not None:
            joined[id(unit.kernel)] = _join(ahead, unit.kernel)
            gone.add(id(ahead))
    left = [unit for unit in units if unit.kernel is None or id(unit.kernel) not in gone]
    return tuple(Unit(kernel=joined.get(id(u.kernel), u.kernel)) if u.kernel is not None else u for u in left)


def _read(unit: Unit) -> set[Value]:
    return set(unit.op.operands()) if unit.op is not None else set(unit.kernel.loads if unit.kernel is not None else ())


def _can_be_ahead(rows: KernelSpec, edges: KernelSpec, readers: Counter[int]) -> bool:
    """Whether a kernel makes nothing but rows that the other ends of these edges read, feature by feature."""
    tiled = tiled_loads(edges)
    if any(v not in tiled or readers[v.id] > 1 for v in rows.stores):
        return False
    made = {v.id for v in rows.stores}
    far = "dst" if edges.is_source else "src"
    if any(place.end != far for place in edges.places.values() if place.base.id in made):
        return False
    if any(v.id in made and v.id not in edges.places for op in edges.ops for v in op.operands()):
        return False
    size = math.prod(tiled[0].row_shape)
    sums = any(isinstance(op.target, SegmentReduce) for op in rows.ops)
    spaces = {v.space for op in rows.ops for v in op.results}
    return not (sums or rows.gathered) and len(spaces) == 1 and all(is_apart(rows, op, size) for op in rows.ops)


def _join(rows: KernelSpec, edges: KernelSpec) -> KernelSpec:
    loads = [v for v in edges.loads if v not in rows.stores]
    loads += [v for v in rows.loads if v not in loads]
    return KernelSpec(
        (*rows.ops, *edges.ops),
        tuple(loads),
        edges.stores,
        edges.own,
        {**rows.places, **edges.places},
        {**rows.given, **edges.given},
        parts=(rows, edges),
    )
