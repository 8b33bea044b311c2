"""Unbatched: what would run once over all rows is drawn into the loop that it feeds, or that feeds it.

Takes: a Program's dataflow and stages. Gives: ops that loop all the same. Runs once per function.
Source: Cavs section 3.5 (lazy batching) and its figure 10: an idea is measured by leaving it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vgraph.ir.moves import AnyMove, Gather, SegmentReduce
from vgraph.ir.program import Op, op_name
from vgraph.ir.space import SHARED
from vgraph.late import late

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = late("networkx")

SLICED = ("vertex", "edge")  # kinds of spaces of which a frontier sees a slice
SUMS = frozenset({"mm", "sum"})  # sums over rows that may be added up frontier by frontier


def draw_into_loops(
    graph: nx.DiGraph[int], ops: Sequence[Op], stages: Mapping[int, int], *, eager: bool, lazy: bool
) -> set[int]:
    """Indices of ops to run in loops: without ``eager`` what a loop waits for, without ``lazy`` what waits for it."""
    odd = {index for index, stage in stages.items() if stage % 2}
    last = max(odd, default=0)
    found: set[int] = set()
    order = list(nx.topological_sort(graph.subgraph(set(graph) - odd)))
    if not eager:
        before = [i for i in reversed(order) if stages[i] < last and _is_of_rows(ops[i])]
        found |= _grown(before, graph.successors, odd, stages)
    if not lazy:
        after = [i for i in order if stages[i] and (_is_of_rows(ops[i]) or is_sum_of_rows(ops[i]))]
        found |= _grown(after, graph.predecessors, odd, stages, needs_all=False)
    return found


def _grown(
    candidates: Sequence[int],
    neighbours: Callable[[int], Iterable[int]],
    loops: Collection[int],
    stages: Mapping[int, int],
    *,
    needs_all: bool = True,
) -> set[int]:
    """Ops beside a loop, and those beside them; what else runs in the same stage must come along."""
    found: set[int] = set()
    for index in candidates:
        near = list(neighbours(index))
        others = [i for i in near if i not in loops and i not in found]
        if near and (not others if needs_all else all(stages[i] < stages[index] for i in others)):
            found.add(index)
    return found


def _is_of_rows(op: Op) -> bool:
    """Row by row on what a frontier has of its own."""
    if isinstance(op.target, AnyMove):
        inside = isinstance(op.target, (Gather, SegmentReduce)) and op.target.end == "dst"
        return inside and not op.target.part
    values = [v for v in (*op.operands(), *op.results) if v.row_dim is not None]
    plain = all(v.space.kind in SLICED and not v.space.key for v in values)
    return op.is_rowwise and plain and all(v.row_dim is not None for v in op.results)


def is_sum_of_rows(op: Op) -> bool:
    """A sum over vertices or edges, such as a parameter's gradient."""
    rows = [v for v in op.operands() if v.row_dim is not None]
    summed = op_name(op.target) in SUMS and bool(rows) and all(v.space.kind in SLICED and not v.space.key for v in rows)
    return summed and all(v.space == SHARED for v in op.results)
