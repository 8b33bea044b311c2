"""CallRows: the rows of one call, in the user's order and in that of frontiers.

Takes: tensors in the user's order. Gives: the same as rows lie, and back. Runs at every step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.program import Input, Rows, Value
from vgraph.ir.schedule import Phase, RowOrder, Schedule
from vgraph.ir.space import EDGE, OF_LEAVES, SOURCE, VERTEX
from vgraph.ir.topology import Topology
from vgraph.ir.upload import send
from vgraph.runtime.extent import Extent, whole_frontier
from vgraph.runtime.moved_rows import MovedRows

VertexTypes = tuple[Tensor, tuple[int, ...]]


_OF_VERTICES = (VERTEX.kind, SOURCE.kind)


@dataclass(eq=False, slots=True)  # a frozen one takes longer to make
class CallContext:
    """One call's data that is not a feature: topology, policy, subsets' rows, the random seed. Nobody changes it.

    ``subsets``: name to (row of the subset for every vertex in the user's order, number of rows).
    ``types``: the type of every vertex in the user's order, and the types that have a function.
    """

    topology: Topology
    policy: str
    subsets: Mapping[str, tuple[Tensor, int]]
    seed: Tensor | None = None
    types: VertexTypes | None = None


def has_order(item: Input) -> bool:
    """Whether an input has rows of vertices or edges in the user's order."""
    return not item.name.startswith(("saved:", "state")) and item.value.space in (VERTEX, SOURCE, EDGE)


class CallRows:
    """Brings tensors from the user's order into row order and back."""

    def __init__(self, schedule: Schedule, call_context: CallContext, moved_rows: MovedRows) -> None:
        self.schedule, self.call_context, self.moved_rows = schedule, call_context, moved_rows
        self.order: RowOrder = schedule.order
        self.subsets = {
            k: (t if k.endswith(OF_LEAVES) else self._rows_of(t), n) for k, (t, n) in call_context.subsets.items()
        }

    def _rows_of(self, per_vertex: Tensor) -> Tensor:
        ids = self.order.vertex_ids
        return per_vertex if ids is None else per_vertex.index_select(0, ids)

    def extents(self, phase: Phase) -> Sequence[Extent]:
        kept: dict[Hashable, Any] = self.schedule.topology.kept
        key = ("extents", self.schedule, phase.is_loop, phase.part)
        made = kept.get(key)
        if made is None or self.subsets:
            made = kept[key] = self._make_extents(phase)
        return made[::-1] if phase.is_reverse else made

    @staticmethod
    def of_all(schedule: Schedule) -> Sequence[Extent]:
        """All rows as one extent, where none is told apart; kept as ``extents`` keeps it."""
        return schedule.topology.keep(
            ("extents", schedule, False, ""), lambda: [Extent(schedule, whole_frontier(schedule.frontiers), None, {})]
        )

    def _make_extents(self, phase: Phase) -> list[Extent]:
        frontiers = self.schedule.frontiers
        if phase.is_loop:
            numbers = self.schedule.numbers(phase.part)
            return [Extent(self.schedule, frontiers[i], i, self.subsets) for i in numbers]
        return [Extent(self.schedule, whole_frontier(frontiers), None, self.subsets)]

    def bring_in(self, item: Input, inputs: Mapping[str, Tensor]) -> Tensor:
        name = item.name
        if item.is_topological:
            return self._topological(name)
        given = inputs[name]
        if not has_order(item):
            return given
        if item.value.space == EDGE:
            return self.moved_rows.in_order(given, self.order)
        ids = self.permutation(item.value, inward=True)
        return given if ids is None else self.taken(given, ids)

    def copied(self, tensor: Tensor) -> Tensor:
        """The same in memory of its own, without gaps."""
        if tensor.device.type != "cpu":
            return tensor.clone(memory_format=torch.contiguous_format)
        return self.moved_rows.empty(tensor.shape, tensor.dtype).copy_(tensor)

    def taken(self, tensor: Tensor, ids: Tensor) -> Tensor:
        """Rows ``ids``."""
        return self.moved_rows.taken(tensor, ids)

    def bring_out(self, value: Value, tensor: Tensor, *, permute: bool) -> Tensor:
        ids = self.permutation(value, inward=False) if permute else None
        if ids is not None and value.row_dim is not None:
            rows = value.shape[value.row_dim]
            assert isinstance(rows, Rows)
            if rows.times != 1:
                split = tensor.unflatten(value.row_dim, (-1, rows.times))
                return split.index_select(value.row_dim, ids).flatten(value.row_dim, value.row_dim + 1)
            return tensor.index_select(value.row_dim, ids) if value.row_dim else self.taken(tensor, ids)
        return tensor

    def permutation(self, value: Value, *, inward: bool) -> Tensor | None:
        """Ids of rows as they lie by the user's order, or the other way; None: both are the same."""
        order, space = self.order, value.space
        if space.key:  # rows of a part
            return None
        if space.kind in _OF_VERTICES and self.schedule.policy != "once":
            return order.vertex_ids if inward else order.vertex_rows
        if space.kind == EDGE.kind:
            return order.edge_ids if inward else order.edge_rows
        return None

    def _topological(self, name: str) -> Tensor:
        order = self.order
        if name == "$in_degree":
            return order.in_ptr[1:] - order.in_ptr[:-1]
        if name == "$slot":
            positions = torch.arange(order.src_rows.shape[0], device=order.src_rows.device)
            return positions - order.in_ptr.index_select(0, order.dst_rows)
        if name in ("$vertex_ids", "$edge_ids", "$src_ids", "$dst_ids"):
            return self._user_ids(name)
        assert name == "$seed" and self.call_context.seed is not None, name
        return send(self.call_context.seed, order.src_rows.device)

    def _user_ids(self, name: str) -> Tensor:
        """Ids as the user knows them, in the 64 bits that are read: a part of a graph remembers those of the whole."""
        topology, order = self.schedule.topology, self.order
        kind = "edge" if name == "$edge_ids" else "vertex"
        if name == "$src_ids":  # rows of sources are never numbered anew
            rows = order.src_rows
            ids = rows if order.vertex_ids is None else order.vertex_ids.index_select(0, rows)
            original = topology.original_ids.get("src")
            ids = ids if original is None else original.index_select(0, ids)
            return ids.long()
        count = order.src_rows.shape[0] if kind == "edge" else order.in_ptr.shape[0] - 1
        own = order.edge_ids if kind == "edge" else order.vertex_ids
        ids = torch.arange(count, device=order.src_rows.device) if own is None else own
        original = topology.original_ids.get(kind)
        ids = ids if original is None else original.index_select(0, ids)
        ids = ids.index_select(0, order.dst_rows) if name == "$dst_ids" else ids
        return ids.long()
