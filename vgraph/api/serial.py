"""Serial: a vertex function that cannot be captured, one vertex after another.

Takes: the user's module and features. Gives: one row a vertex, by ordinary autograd; tempo: every call.
Source: Cavs section 3.2 (the serial policy is its baseline).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vgraph.api.rows import RowTensor, as_rows, plain
from vgraph.api.vertex import StateSpec, Vertex
from vgraph.errors import NameLookupError
from vgraph.ir.moves import Gather, Move, PutSlot, SegmentReduce, TakeSlot
from vgraph.ir.program import EDGE, VERTEX
from vgraph.scheduler.frontiers import levels
from vgraph_kernels import reference


class VertexSession:
    """A Session on one real vertex: Moves happen at once."""

    mailbox = None
    watches_slots = False
    branched = False

    def __init__(
        self, feed: Any, vertex: int, edge_ids: Tensor, children: Mapping[str, Tensor]
    ) -> None:
        self.feed, self.vertex, self.edge_ids, self.children = feed, vertex, edge_ids, children
        self.num_slots_needed: set[int] = set()
        self.widens = edge_ids.shape[0] == 0
        self.num_vertices = 1

    def input(self, name: str) -> RowTensor:
        rows, kind = self.feed.find(name), name.partition(":")[0]
        if kind == "edge":
            return as_rows(rows.index_select(0, self.edge_ids), EDGE, self)
        if kind == "subset":
            place = int(self.feed.subsets["@" + name.partition(":")[2]][0][self.vertex])
        elif kind == "graph":
            place = int(self.feed.topology.graph_ids[self.vertex])
        else:
            place = self.vertex
        return as_rows(rows[place : place + 1], VERTEX, self)

    def child(self, name: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> RowTensor:
        rows = self.children.get(name)
        return as_rows(
            torch.zeros((0, *row_shape), dtype=dtype) if rows is None else rows, EDGE, self
        )

    def in_degree(self) -> Tensor:
        return torch.tensor([self.edge_ids.shape[0]])

    def slots(self) -> Tensor:
        return torch.arange(self.edge_ids.shape[0])

    def run_move(self, move: Move, rows: Tensor) -> Any:
        count = self.edge_ids.shape[0]
        ptr = torch.tensor([0, count])
        if isinstance(move, Gather):
            return (
                rows.expand(count, *rows.shape[1:]).clone() if move.end == "dst" else rows.clone()
            )
        if isinstance(move, TakeSlot):
            return reference.take_slot(rows, ptr, count, move.k)
        if isinstance(move, PutSlot):
            return reference.put_slot(rows, ptr, count, count, move.k)
        assert isinstance(move, SegmentReduce)
        if move.reduction == "sum":
            return reference.segment_sum(rows, None, ptr, count).clone()
        if move.reduction == "prod":
            return reference.segment_prod(rows, ptr, count)
        return reference.segment_extremum(rows, ptr, count, move.reduction == "max")


class _Known(dict[str, StateSpec]):
    """States seen so far; before the first scatter every state is one column wide."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key) or StateSpec((1,), torch.get_default_dtype())


def run_serially(module: Any, feed: Any, given: Mapping[str, StateSpec]) -> dict[str, Tensor]:
    """Evaluates vertices in an order that puts children first; ordinary autograd does the rest."""
    topology = feed.topology
    csc = topology.csc
    known, ptr = _Known(given), csc.ptr.tolist()
    states: list[dict[str, Tensor]] = [{} for _ in range(topology.num_dst)]
    pushed: list[dict[str, Tensor]] = [{} for _ in range(topology.num_dst)]
    order = torch.argsort(torch.as_tensor(levels(topology)), stable=True).tolist()
    for v in order:
        first, last = ptr[v], ptr[v + 1]
        edge_ids = torch.arange(first, last) if csc.edge_ids is None else csc.edge_ids[first:last]
        kids = [states[u] for u in csc.other[first:last].tolist()]
        session: Any = VertexSession(feed, v, edge_ids, _stacked(kids))
        vertex = Vertex(session, known, feed.full_name)
        module.forward(vertex)
        _check_scattered(vertex)
        states[v] = {name: plain(t) for name, t in vertex.scattered.items()}
        pushed[v] = {name: plain(t) for name, t in vertex.pushed.items()}
        known.update({n: StateSpec(tuple(t.shape[1:]), t.dtype) for n, t in states[v].items()})
    names = pushed[0] if pushed else {}
    return {name: torch.cat([one[name] for one in pushed]) for name in names}


def _stacked(children: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {
        name: torch.cat([child[name] for child in children])
        for name in (children[0] if children else ())
    }


def _check_scattered(vertex: Vertex) -> None:
    for name in vertex.gathered:
        if name not in vertex.scattered:
            raise NameLookupError(
                f"the state {name!r} is gathered but never scattered",
                cure=f"scatter it: v.scatter({name}=...)",
            )
