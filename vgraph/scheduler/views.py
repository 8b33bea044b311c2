"""Views: slices and gathers of what was computed once, taken inside the loop that reads them.

Takes: Phases. Gives: the same, with views beside their readers. Runs once per function.
So a kernel reads the wide rows, or those at an end of an edge, in place, and nobody copies them for all rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, Value, map_leaves
from vgraph.ir.schedule import Phase
from vgraph.ir.space import OF_LEAVES
from vgraph.ir.tdl.table import is_view


def store_views(phases: Sequence[Phase], outside: Iterable[int]) -> tuple[Phase, ...]:
    """Every loop takes anew the views that it reads of earlier phases' rows; ``outside``: ids that others read.

    A gather moves only if loops alone read it.
    """
    wanted = set(outside).union(*({v.id for op in p.ops for v in op.operands()} for p in phases if not p.is_loop))
    makers = {
        v.id: op
        for phase in phases
        if not phase.is_loop
        for op in phase.ops
        if _is_movable(op, wanted)
        for v in op.results
    }
    values = (v for phase in phases for op in phase.ops for v in (*op.operands(), *op.results))
    numbers = count(1 + max((v.id for v in values), default=0))
    found = [_with_views(phase, makers, numbers) if phase.is_loop else phase for phase in phases]
    read = wanted.union(*({v.id for op in phase.ops for v in op.operands()} for phase in found))
    kept = [phase if phase.is_loop else _without_idle_views(phase, wanted, read) for phase in found]
    return tuple(_late_gathers(kept, set(outside)))


def _late_gathers(phases: list[Phase], outside: set[int]) -> list[Phase]:
    """Rows at ends of edges that only one later phase reads, which runs once, are gathered there."""
    readers = _readers(phases)
    for index, phase in enumerate(phases):
        for op in () if phase.is_loop else phase.ops:
            if not _is_along_edges(op) or op.results[0].id in outside:
                continue
            there = readers[op.results[0].id]
            last = max(there, default=index)
            if len(there) == 1 and last > index and not phases[last].is_loop:
                phases[index] = replace(phases[index], ops=tuple(o for o in phases[index].ops if o is not op))
                phases[last] = replace(phases[last], ops=(op, *phases[last].ops))
                for value in op.operands():
                    readers[value.id] = readers[value.id] - Counter((index,)) + Counter((last,))
    return phases


def _readers(phases: Sequence[Phase]) -> defaultdict[int, Counter[int]]:
    """By id of a value, how often each phase reads it."""
    readers = defaultdict[int, Counter[int]](Counter)
    for index, phase in enumerate(phases):
        for op in phase.ops:
            for value in op.operands():
                readers[value.id][index] += 1
    return readers


def _is_along_edges(op: Op) -> bool:
    is_plain = isinstance(op.target, Gather) and op.target.end in ("src", "dst") and not op.target.part
    return is_plain and op.results[0].row_dim == 0


def _with_views(phase: Phase, makers: dict[int, Op], numbers: count[int]) -> Phase:
    sunk: dict[int, Value] = {}
    views = list[Op]()

    def take(value: Value) -> Value:
        chain, above = list[Op](), value
        while above.id not in sunk and above.id in makers:
            chain.append(makers[above.id])
            above = chain[-1].args[0]
        for op in reversed(chain):
            source = sunk.get(op.args[0].id, op.args[0])
            results = tuple(Value(next(numbers), v.space, v.dtype, v.shape, v.line) for v in op.results)
            sunk.update((old.id, new) for old, new in zip(op.results, results, strict=True))
            views.append(replace(op, args=(source, *op.args[1:]), results=results))
        return sunk.get(value.id, value)

    def now(leaf: object) -> object:
        return take(leaf) if isinstance(leaf, Value) else leaf

    ops = [
        replace(op, args=map_leaves(op.args, now), kwargs={k: map_leaves(v, now) for k, v in op.kwargs.items()})
        for op in phase.ops
    ]
    return replace(phase, ops=(*views, *ops)) if views else phase


def _is_movable(op: Op, wanted: set[int]) -> bool:
    if _is_row_view(op):
        return True
    return _is_along_edges(op) and op.results[0].id not in wanted


def _is_row_view(op: Op) -> bool:
    """A slice of the features of rows, or what leaves were given."""
    if isinstance(op.target, Gather):
        return op.target.end.endswith(OF_LEAVES)
    return (
        is_view(op.target)
        and op.name in ("split", "slice", "split_with_sizes", "select")
        and all(v.space.kind in ("vertex", "edge") and v.row_dim == 0 for v in (*op.operands(), *op.results))
        and len(list(op.operands())) == 1
    )


def _without_idle_views(phase: Phase, wanted: set[int], read: set[int]) -> Phase:
    kept = [op for op in phase.ops if not _is_movable(op, wanted) or any(v.id in read for v in op.results)]
    return replace(phase, ops=tuple(kept))
