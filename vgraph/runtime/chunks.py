"""Chunks: a phase that would store a row an edge runs on some vertices and their in-edges at a time.

Takes: a phase's code, values of all rows, a plan. Gives: values of all rows. Runs at every step.
Source: DGL section 4 (a message that is stored must not be as long as the graph has edges).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vgraph.ir.program import Rows, Value
from vgraph.ir.schedule import Phase, Schedule
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.ir.topology import Topology
from vgraph.runtime.cpu.kernels import Empty
from vgraph.runtime.extent import Extent, whole_frontier
from vgraph.runtime.python_codegen import PhaseCode

MOST_BYTES = 1 << 25  # of rows of edges that a chunk makes


@dataclass(frozen=True, eq=False)
class Chunk:
    """Vertex rows [v0, v1) and their in-edges, rows [e0, e1), as a graph of their own; all sources."""

    v0: int
    v1: int
    e0: int
    e1: int
    extent: Extent
    topology: Topology  # of the extent, which holds it weakly


def chunks_of(schedule: Schedule, most_edges: int, make_schedule: Callable[[Topology], Schedule]) -> list[Chunk] | None:
    """Chunks of at most so many edges, or of one vertex; None where all edges are one; kept."""
    if schedule.topology.num_edges <= most_edges:
        return None
    most_edges = 1 << (most_edges.bit_length() - 1)  # few different ones are kept
    return schedule.topology.keep(("chunks", most_edges), lambda: _make_chunks(schedule, most_edges, make_schedule))


def _make_chunks(schedule: Schedule, most_edges: int, make_schedule: Callable[[Topology], Schedule]) -> list[Chunk]:
    order, made, v0 = schedule.order, list[Chunk](), 0
    while v0 < schedule.topology.num_dst:
        e0 = int(order.in_ptr[v0])
        v1 = int(torch.searchsorted(order.in_ptr, e0 + most_edges, right=True)) - 1
        v1 = max(v1, v0 + 1)
        e1 = int(order.in_ptr[v1])
        topology = _part(schedule, v0, v1, e0, e1)
        part = make_schedule(topology)
        made.append(Chunk(v0, v1, e0, e1, Extent(part, whole_frontier(part.frontiers), None, {}), topology))
        v0 = v1
    return made


def _part(schedule: Schedule, v0: int, v1: int, e0: int, e1: int) -> Topology:
    """The in-edges of some vertices, in order of rows, which know the ids of the whole."""
    order, whole = schedule.order, schedule.topology
    counts = order.in_ptr[v0 + 1 : v1 + 1] - order.in_ptr[v0:v1]
    src = order.src_rows[e0:e1]
    dst = torch.repeat_interleave(torch.arange(v1 - v0, dtype=src.dtype, device=src.device), counts)
    ids = {"vertex": torch.arange(v0, v1, device=src.device), "edge": torch.arange(e0, e1, device=src.device)}
    if order.edge_ids is not None:
        ids["edge"] = order.edge_ids[e0:e1].long()
    known = whole.original_ids
    ids = {kind: known[kind].index_select(0, own) if kind in known else own for kind, own in ids.items()}
    ids |= {"src": known["src"]} if "src" in known else {}
    return Topology(src, dst, whole.num_src, v1 - v0, original_ids=ids)


@dataclass(frozen=True, eq=False)
class ChunkedCode:
    """A phase's code that may run chunk by chunk; ``values`` are those that it reads and stores."""

    code: PhaseCode
    values: Mapping[int, Value]
    row_bytes: int  # of all that it stores of an edge

    def run(self, env: dict[int, Tensor], chunks: Iterable[Chunk], empty: Empty, count: Callable[[Space], int]) -> None:
        """What it makes of vertices and edges lies where they do; of sources and of all rows it is added up."""
        for chunk in chunks:
            part = {i: self._cut(i, env[i], chunk) for i in self.code.reads}
            self.code.run(part, {}, [chunk.extent])
            for i in self.code.stores:
                self._put(i, env, part.pop(i), chunk, empty, count)

    def _cut(self, value_id: int, rows: Tensor, chunk: Chunk) -> Tensor:
        return _rows(self.values[value_id], rows, chunk)

    def _put(
        self,
        value_id: int,
        env: dict[int, Tensor],
        rows: Tensor,
        chunk: Chunk,
        empty: Empty,
        count: Callable[[Space], int],
    ) -> None:
        value = self.values[value_id]
        if value.space not in (VERTEX, EDGE):
            env[value_id] = rows if value_id not in env else env[value_id] + rows
            return
        if value_id not in env:
            shape = [count(d.space) * d.times if isinstance(d, Rows) else d for d in value.shape]
            env[value_id] = empty(shape, rows.dtype)
        _rows(value, env[value_id], chunk).copy_(rows)


def _rows(value: Value, rows: Tensor, chunk: Chunk) -> Tensor:
    if value.space not in (VERTEX, EDGE):
        return rows
    dim = value.row_dim
    assert dim is not None
    size = value.shape[dim]
    assert isinstance(size, Rows)
    first, last = (chunk.v0, chunk.v1) if value.space == VERTEX else (chunk.e0, chunk.e1)
    return rows.narrow(dim, first * size.times, (last - first) * size.times)


def chunked_code(phase: Phase, code: PhaseCode) -> ChunkedCode:
    """The phase's code with what it needs to know of its values."""
    values = {v.id: v for op in phase.ops for v in (*op.operands(), *op.results)}
    values |= {v.id: v for u in code.units if u.kernel is not None for v in (*u.kernel.loads, *u.kernel.stores)}
    kept = {v.id: v for v in _stored(phase, code) if v.space == EDGE}
    return ChunkedCode(code, values, sum(v.row_bytes for v in kept.values()))


def _stored(phase: Phase, code: PhaseCode) -> Iterable[Value]:
    units = code.units
    if not units:
        return (v for op in phase.ops for v in op.results)
    return (v for u in units for v in (u.op.results if u.op is not None else u.kernel.stores if u.kernel else ()))
