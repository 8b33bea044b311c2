"""Extent: the rows that one evaluation covers, and the Moves on them.

Takes: a Schedule. Gives: one Extent for all rows, or one a frontier. Runs once per topology.
Source: Cavs section 3.3 (gather and scatter as memory movement between dynamic tensors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from vgraph.ir.reductions import Reduced, reduce_info
from vgraph.ir.schedule import Frontier, RowOrder, Schedule
from vgraph.ir.space import OF_LEAVES
from vgraph.ir.topology import Topology
from vgraph.runtime.cpu.kernels import Empty, Prepared, torch_empty
from vgraph_kernels import reference

Parameters: TypeAlias = Sequence[Any]  # of a distribution: numbers, or a tensor of chances


class Extent:
    """Vertex rows [v0, v1) and edge rows [e0, e1) of a schedule."""

    def __init__(
        self,
        schedule: Schedule,
        frontier: Frontier,
        number: int | None,
        subsets: Mapping[str, tuple[Tensor, int]],
        order: RowOrder | None = None,
        empty: Empty = torch_empty,
    ) -> None:
        self.empty = empty
        self.schedule, self.number = schedule, number  # the frontier's number; None: all rows
        self.order = order or schedule.order
        self.v0, self.v1, self.e0, self.e1 = frontier.v0, frontier.v1, frontier.e0, frontier.e1
        self.degree = frontier.degree
        self.subsets = subsets  # name -> (row of the subset for every vertex row, number of rows)

    @cached_property
    def prepared(self) -> dict[int, Prepared]:
        """What calls of kernels have in common, by the kernels' numbers."""
        return {}

    @property
    def topology(self) -> Topology:
        """That of the schedule."""
        return self.schedule.topology

    def count(self, kind: str, key: str = "") -> int:
        """The number of rows of a space that this extent sees."""
        if kind == "vertex":
            return self.v1 - self.v0
        if kind == "edge":
            return self.e1 - self.e0
        if kind == "source":
            return self.topology.num_src
        if kind == "inner":
            return self.v1 - self.schedule.num_leaves
        if kind == "graph":
            return len(self.topology.graph_sizes or (1,))
        return self.subsets[key][1]

    # ------------------------------------------------------------ vertices of one type
    def part(self, key: str) -> Extent:
        """The same rows, of one type of vertices alone."""
        if key not in self._parts:
            part = self.schedule.parts[key]
            own = whole_frontier(part.frontiers) if self.number is None else part.frontiers[self.number]
            self._parts[key] = Extent(self.schedule, own, self.number, self.subsets, part.order, self.empty)
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[str, Extent]:
        return {}

    def _rows_of(self, kind: str, key: str) -> Tensor:
        """Where the rows of a part lie within this extent."""
        part, own = self.schedule.parts[key], self.part(key)
        if kind == "vertex":
            return part.vertex_rows[own.v0 : own.v1] - self.v0
        return part.edge_rows[own.e0 : own.e1] - self.e0

    def select(self, kind: str, key: str, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._rows_of(kind, key))

    def spread(self, kind: str, key: str, rows: Tensor) -> Tensor:
        whole = rows.new_zeros((self.count(kind), *rows.shape[1:]))
        return whole.index_copy_(0, self._rows_of(kind, key), rows)

    # ------------------------------------------------------------ index tensors, made when asked for
    @cached_property
    def src_rows(self) -> Tensor:
        return self.order.src_rows[self.e0 : self.e1]

    @cached_property
    def dst_local(self) -> Tensor:
        return self.order.dst_rows[self.e0 : self.e1] - self.v0

    @cached_property
    def in_ptr(self) -> Tensor:
        return self.order.in_ptr[self.v0 : self.v1 + 1] - self.e0

    @cached_property
    def _out(self) -> tuple[Tensor, Tensor, int | None]:
        if self.is_whole:
            ptr, edges = self.order.out_ptr, self.order.out_edges
            bounds = self.order.pointer_on_host("out_ptr")
        else:
            both = (self.order.out_ptr, self.order.pointer_on_host("out_ptr"))
            ptr, bounds = (pointer[self.v0 : self.v1 + 1] for pointer in both)
            first, last = int(bounds[0]), int(bounds[-1])
            ptr, edges = ptr - first, self.order.out_edges[first:last]
        counts = bounds[1:] - bounds[:-1]
        uniform = counts.shape[0] > 0 and bool((counts == counts[0]).all())
        return edges, ptr, int(counts[0]) if uniform else None

    @cached_property
    def is_whole(self) -> bool:
        return self.v0 == 0 and self.v1 == self.topology.num_dst

    @cached_property
    def graph_ids(self) -> Tensor:
        ids = self.topology.graph_ids
        if self.order.vertex_ids is not None:
            ids = ids.index_select(0, self.order.vertex_ids)
        return ids[self.v0 : self.v1]

    @cached_property
    def vertex_ids(self) -> Tensor:
        ids = self.order.vertex_ids
        if ids is None:
            ids = torch.arange(self.v0, self.v1, device=self.order.src_rows.device)
        else:
            ids = ids[self.v0 : self.v1]
        return self._original("vertex", ids)

    def _original(self, kind: str, ids: Tensor) -> Tensor:
        """A part of a graph knows the ids of the whole."""
        known = self.topology.original_ids.get(kind)
        return ids if known is None else known.index_select(0, ids)

    @cached_property
    def edge_ids(self) -> Tensor:
        ids = self.order.edge_ids
        if ids is None:
            ids = torch.arange(self.e0, self.e1, device=self.order.src_rows.device)
        else:
            ids = ids[self.e0 : self.e1]
        return self._original("edge", ids)

    def user_ids(self, kind: str) -> Tensor | None:
        """The user's ids of all vertices or edges, int64 as kernels read them; None where row r has id r."""
        ids = self.order.vertex_ids if kind == "vertex" else self.order.edge_ids
        if ids is None and self.topology.original_ids.get(kind) is None:
            return None
        return (self.vertex_ids if kind == "vertex" else self.edge_ids).to(torch.int64)

    # ------------------------------------------------------------ moves
    def gather_src(self, rows: Tensor) -> Tensor:
        if rows.device.type != "cpu" or rows.requires_grad:
            return rows.index_select(0, self.src_rows)
        return torch.index_select(
            rows, 0, self.src_rows, out=self.empty((self.e1 - self.e0, *rows.shape[1:]), rows.dtype)
        )

    def gather_dst(self, rows: Tensor) -> Tensor:
        if self.degree == 1:
            return rows
        if self.degree is not None:
            spread = rows.unsqueeze(1).expand(rows.shape[0], self.degree, *rows.shape[1:])
            return spread.reshape(self.e1 - self.e0, *rows.shape[1:])
        return rows.index_select(0, self.dst_local)

    def gather_graph(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self.graph_ids)

    def gather_subset(self, name: str, rows: Tensor) -> Tensor:
        if name.endswith(OF_LEAVES):  # rows of leaves come first, in the same order
            leaves = rows[:-1][self.v0 : self.v1]
            num_others = self.count("vertex") - leaves.shape[0]
            if not num_others:
                return leaves
            others = rows[-1:].expand(num_others, *rows.shape[1:])
            return torch.cat([leaves, others]) if leaves.shape[0] else others
        return rows.index_select(0, self.subsets[name][0][self.v0 : self.v1])

    def reduce_dst(self, reduction: str, rows: Tensor) -> Reduced:
        return reduce_info(reduction).segments(rows, self.in_ptr, self.degree)

    def reduce_src(self, reduction: str, rows: Tensor) -> Tensor:
        assert reduce_info(reduction).is_linear
        edges, ptr, degree = self._out
        return reference.segment_sum(rows, edges, ptr, degree)

    def reduce_graph(self, reduction: str, rows: Tensor) -> Tensor:
        assert reduce_info(reduction).is_linear
        return _sum_by(rows, self.graph_ids, self.count("graph"))

    def reduce_subset(self, name: str, rows: Tensor) -> Tensor:
        ids, count = self.subsets[name]
        if name.endswith(OF_LEAVES):
            assert self.is_whole, "sums over subsets run once"
            made = (
                self.empty((count, *rows.shape[1:]), rows.dtype) if rows.device.type == "cpu" else rows[:count].clone()
            )
            made[:-1] = rows[: count - 1]
            made[-1] = rows[count - 1 :].sum(0)
            return made
        return _sum_by(rows, ids[self.v0 : self.v1], count)

    def leaf_rows(self, is_loose: bool, rows: Tensor) -> Tensor:
        """Those of leaves, which come first, and one of zeros, or of any numbers."""
        count = self.schedule.num_leaves if self.schedule.policy != "once" else 0
        if is_loose and count < rows.shape[0]:
            return rows[: count + 1]
        shape = (count + 1, *rows.shape[1:])
        made = self.empty(shape, rows.dtype) if rows.device.type == "cpu" else rows.new_empty(shape)
        made[:-1], made[-1] = rows[:count], 0
        return made

    def inner_rows(self, rows: Tensor) -> Tensor:
        return rows[self.schedule.num_leaves if self.schedule.policy != "once" else 0 :]

    def take_slot(self, k: int, rows: Tensor) -> Tensor:
        return reference.take_slot(rows, self.in_ptr, self.degree, k)

    def put_slot(self, k: int, rows: Tensor) -> Tensor:
        return reference.put_slot(rows, self.in_ptr, self.e1 - self.e0, self.degree, k)

    # ------------------------------------------------------------ random numbers
    def random(
        self,
        distribution: str,
        number: int,
        seed: Tensor,
        kind: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        extra: Parameters,
    ) -> Tensor:
        """Numbers keyed by the user's ids of this extent's rows."""
        return draw_random(distribution, number, seed, self._ids_of(kind, shape), shape, dtype, extra)

    def _ids_of(self, kind: str, shape: tuple[int, ...]) -> Tensor | None:
        if kind == "vertex":
            return self.vertex_ids
        if kind == "edge":
            return self.edge_ids
        return None if kind == "shared" else torch.arange(shape[0], device=self.order.src_rows.device)


def draw_random(
    distribution: str,
    number: int,
    seed: Tensor,
    ids: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    extra: Parameters,
) -> Tensor:
    """Numbers keyed by the ids of rows; without ids by the position in the whole tensor."""
    return _DISTRIBUTIONS[distribution](seed, number, ids, shape, dtype, extra)


def whole_frontier(frontiers: Sequence[Frontier]) -> Frontier:
    """All rows as one frontier, with the in-degree if there is only one."""
    if len(frontiers) == 1:
        return frontiers[0]
    return Frontier(0, frontiers[-1].v1, 0, frontiers[-1].e1, None) if frontiers else Frontier(0, 0, 0, 0, None)


def _sum_by(rows: Tensor, ids: Tensor, count: int) -> Tensor:
    return rows.new_zeros((count, *rows.shape[1:])).index_add_(0, ids, rows)


def _bernoulli(
    seed: Tensor,
    number: int,
    ids: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    extra: Parameters,
) -> Tensor:
    chance = extra[0] if extra else 0.5
    drawn = reference.random_uniform(seed, number, ids, shape, torch.float64)
    return (drawn < chance).to(dtype)


def _uniform(
    seed: Tensor,
    number: int,
    ids: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    extra: Parameters,
) -> Tensor:
    if not extra:
        return reference.random_uniform(seed, number, ids, shape, dtype)
    low, high = extra
    wide = torch.promote_types(dtype, torch.float32)
    drawn = reference.random_uniform(seed, number, ids, shape, wide) * (high - low) + low
    return drawn.to(dtype).clamp_max(reference.last_below(high, low, dtype))  # sums are rounded, up to ``high`` itself


def _normal(
    seed: Tensor,
    number: int,
    ids: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    extra: Parameters,
) -> Tensor:
    drawn = reference.random_normal(seed, number, ids, shape, dtype)
    return drawn if not extra else drawn * (extra[1] if len(extra) > 1 else 1.0) + extra[0]


def _exponential(
    seed: Tensor,
    number: int,
    ids: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    extra: Parameters,
) -> Tensor:
    drawn = reference.random_uniform(seed, number, ids, shape, torch.float64)
    return (-torch.log1p(-drawn) / (extra[0] if extra else 1.0)).to(dtype)


_DISTRIBUTIONS: dict[str, Callable[..., Tensor]] = {
    "bernoulli": _bernoulli,
    "bernoulli_tensor": _bernoulli,
    "uniform": _uniform,
    "normal": _normal,
    "exponential": _exponential,
}
