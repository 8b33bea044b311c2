"""CompiledProgram: phases as code, run on a plan.

Takes: tensors in the user's order. Gives: tensors in the user's order; tempo: every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.ir.interpreter import PhaseCode
from vgraph.ir.memory import Lifetime, MemoryPlan
from vgraph.ir.program import EDGE, OF_LEAVES, SOURCE, VERTEX, Input, Program, Rows, Space, Value
from vgraph.ir.schedule import Phase, RowOrder, Schedule, Stretch
from vgraph.ir.topology import Topology
from vgraph.ir.upload import send
from vgraph.runtime.chunks import MOST_BYTES, ChunkedCode, chunked_code, chunks_of
from vgraph.runtime.cpu import Empty
from vgraph.runtime.extent import Extent, whole_frontier


class Lease(Protocol):
    """A buffer of bytes that nobody else holds until it is released or forgotten."""

    buffer: Tensor


MOST_DEGREES = 4  # in-degrees for which there is code of their own
VertexTypes = tuple[Tensor, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Plan:
    """What is known of one Program on one topology before any feature is seen; memory when it is asked for."""

    schedule: Schedule
    plan_memory: Callable[[], MemoryPlan]

    @cached_property
    def memory(self) -> MemoryPlan:
        return self.plan_memory()


@dataclass(frozen=True, eq=False)
class Situation:
    """One call's data that is not a feature: topology, policy, subsets' rows, the random seed.

    ``subsets``: name to (row of the subset for every vertex in the user's order, number of rows).
    ``types``: the type of every vertex in the user's order, and the types that have a function.
    """

    topology: Topology
    policy: str
    subsets: Mapping[str, tuple[Tensor, int]]
    seed: Tensor | None = None
    types: VertexTypes | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outputs, values saved for the backward (in row order) and what keeps their memory."""

    outputs: list[Tensor | None]
    saved: list[Tensor]
    lease: Lease | None


@dataclass(eq=False)
class CompiledProgram:
    """A Program ready to run on any topology.

    The first ``num_outputs`` outputs are given in the user's order (those of ``in_rows`` as rows
    lie), in memory of their own; the rest as they were stored, valid while the lease is held.
    """

    program: Program
    phases: tuple[Phase, ...]
    turns: Sequence[range]  # phases that run one after the other; several of one range take turns
    codes: tuple[PhaseCode, ...]
    num_outputs: int
    in_rows: frozenset[int]
    stored: tuple[Value, ...]  # what loops write, slice by slice
    lifetimes: Mapping[int, Lifetime]
    zero_at_leaves: frozenset[int]  # ids of values
    reads_at_leaves: frozenset[int]
    make_plan: Callable[[CompiledProgram, Situation], Plan]
    lease: Callable[[int, torch.device], Lease]
    empty: Empty
    device: str  # the kind of device that its kernels run on
    inner_degree: int | None  # the only one of vertices that are no leaves, on all topologies that it runs on
    varies: bool  # there may be better code for those
    make_for: Callable[[str, int | None], CompiledProgram]

    @cached_property
    def _others(self) -> dict[tuple[str, int | None], CompiledProgram]:
        return {}

    def on(self, device: str, inner_degree: int | None = None) -> CompiledProgram:
        """The same with kernels for another kind of device, or with torch's operators where that has none.

        ``inner_degree``: for topologies where all vertices but leaves have this many in-edges.
        """
        key = (device, inner_degree)
        if key not in self._others:
            self._others[key] = self.make_for(*key)
        return self._others[key]

    @cached_property
    def unread_at_leaves(self) -> frozenset[int]:
        """Ids of inputs with rows of vertices that nothing reads at vertices without in-edges."""
        rows = {item.value.id for item in self.program.inputs if item.value.space == VERTEX}
        given = {v.id for v in self.program.outputs if v is not None} | {c.source.id for c in self.program.carries}
        return frozenset(rows - given - self.reads_at_leaves)

    @cached_property
    def has_kernels(self) -> bool:
        return any(code.units for code in self.codes)

    def __call__(self, inputs: Mapping[str, Tensor], situation: Situation) -> Outcome:
        """Runs every phase; ``inputs`` by name, those that the topology gives left out."""
        device = situation.topology.src.device
        if device.type != self.device:
            return self.on(device.type, self.inner_degree)(inputs, situation)
        plan = self.make_plan(self, situation)
        if self.varies and situation.types is None:
            degree = plan.schedule.inner_degree
            if degree is not None and degree <= MOST_DEGREES:
                return self.on(self.device, degree)(inputs, situation)
        rows = _Rows(plan.schedule, situation, self.empty)
        env = {item.value.id: rows.bring_in(item, inputs) for item in self._read_inputs}
        kept = {item.value.id for item in self._read_inputs if env[item.value.id] is inputs.get(item.name)}
        lease = self.lease(plan.memory.num_bytes, device) if plan.memory.num_bytes else None
        arena = _arena_views(plan.memory, self.stored, lease)
        for turn, last_read in zip(self.turns, self._last_reads, strict=True):
            first = self.phases[turn[0]]
            if first.kind:
                self._take_turns(turn, env, arena, rows)
            elif self.codes[turn[0]].loop is not None:
                self.codes[turn[0]].loop.run(env, arena, plan.schedule)
            elif first.is_chunked and self._run_in_chunks(turn[0], env, plan.schedule):
                pass
            else:
                self.codes[turn[0]].run(env, arena, rows.extents(first))
            if arena:
                env.update((i, arena[i]) for index in turn for i in self.codes[index].stores if i in arena)
            for i in last_read - kept:  # what the caller gave is compared with what it gets
                del env[i]
        return self._outcome(env, rows, lease)

    def _run_in_chunks(self, index: int, env: dict[int, Tensor], schedule: Schedule) -> bool:
        """Whether there are edges enough for more than one chunk, which have run then.

        Not where loops follow or went before: those read and make rows of all edges anyway.
        """
        if schedule.policy != "once":
            return False
        chunked, topology = self._chunked[index], schedule.topology

        def schedule_of(part: Topology) -> Schedule:
            return self.make_plan(self, Situation(part, schedule.policy, {})).schedule

        def count(space: Space) -> int:
            return topology.num_dst if space == VERTEX else topology.num_edges

        chunks = chunks_of(schedule, max(1, MOST_BYTES // max(chunked.row_bytes, 1)), schedule_of)
        if chunks is None:
            return False
        chunked.run(env, chunks, self.empty, count)
        return True

    @cached_property
    def _chunked(self) -> dict[int, ChunkedCode]:
        pairs = enumerate(zip(self.phases, self.codes, strict=True))
        return {index: chunked_code(phase, code) for index, (phase, code) in pairs if phase.is_chunked}

    @cached_property
    def _last_reads(self) -> list[set[int]]:
        """For every turn: ids of what nothing reads after it."""
        seen, found = {v.id for v in self.program.outputs if v is not None}, list[set[int]]()
        for turn in reversed(self.turns):
            found.append({i for index in turn for i in self.codes[index].reads} - seen)
            seen |= found[-1]
        return found[::-1]

    def _take_turns(self, turn: range, env: dict[int, Tensor], arena: dict[int, Tensor], rows: _Rows) -> None:
        """Loops of one type of vertices each, as frontiers of their types follow one another."""
        first = self.phases[turn[0]]
        codes = {self.phases[index].kind: self.codes[index] for index in turn}
        in_python = any(code.loop is None for code in codes.values())
        extents = rows.extents(replace(first, is_reverse=False)) if in_python else []
        schedule = rows.schedule
        start = schedule.numbers(first.part).start
        key = ("stretches", schedule, first.part)
        stretches = schedule.topology.keep(key, lambda: schedule.stretches(first.part))
        for kind, stretch in stretches[::-1] if first.is_reverse else stretches:
            code = codes.get(kind)
            if code is None:  # vertices of this type do nothing
                self._leave_zeros(turn, arena, stretch)
            elif code.loop is not None:
                code.loop.run(env, arena, stretch)
            else:
                mine = extents[stretch.only.start - start : stretch.only.stop - start]
                code.run(env, arena, mine[::-1] if first.is_reverse else mine)

    def _leave_zeros(self, turn: range, arena: dict[int, Tensor], stretch: Stretch) -> None:
        first, last = (stretch.frontiers[i] for i in (stretch.only[0], stretch.only[-1]))
        for value in self.stored:
            if value.row_dim == 0 and any(value.id in self.codes[index].stores for index in turn):
                is_edge = value.space.kind == "edge"
                rows = slice(first.e0, last.e1) if is_edge else slice(first.v0, last.v1)
                arena[value.id][rows].zero_()

    @cached_property
    def _read_inputs(self) -> tuple[Input, ...]:
        """Kernels compute for themselves what they can tell from the topology."""
        read = {i for code in self.codes for i in code.reads} | {v.id for v in self.program.outputs if v is not None}
        return tuple(item for item in self.program.inputs if item.value.id in read or not item.is_topological)

    def _outcome(self, env: Mapping[int, Tensor], rows: _Rows, lease: Lease | None) -> Outcome:
        values = self.program.outputs
        saved = [env[v.id] for v in values[self.num_outputs :] if v is not None]
        taken = {_memory(env[i.value.id]) for i in self._read_inputs if i.value.id in env}.union(map(_memory, saved))
        if lease is not None:
            taken.add(_memory(lease.buffer))
        given: list[Tensor | None] = []
        for i, value in enumerate(values[: self.num_outputs]):
            if value is None:
                given.append(None)
                continue
            tensor = rows.bring_out(value, env[value.id], permute=i not in self.in_rows)
            if tensor.is_sparse:  # the gradient of an embedding, whose rows may lie in the arena
                given.append(tensor.clone())
                continue
            if _memory(tensor) in taken or not tensor.is_contiguous():
                tensor = rows.copied(tensor)  # memory of its own: the caller may write to it
            taken.add(_memory(tensor))
            given.append(tensor)
        return Outcome(given, saved, lease)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _arena_views(memory: MemoryPlan, values: Sequence[Value], lease: Lease | None) -> dict[int, Tensor]:
    views: dict[int, Tensor] = {}
    if not values:
        return views
    buffer = lease.buffer if lease else torch.empty(0, dtype=torch.uint8)
    for value in values:
        view = memory.tensors[value.id].view(buffer)
        dim = value.row_dim
        assert dim is not None
        rows = value.shape[dim]
        assert isinstance(rows, Rows)
        if rows.times != 1:
            view = view.flatten(0, 1)
        views[value.id] = view.movedim(0, dim) if dim else view
    return views


class _Rows:
    """Brings tensors from the user's order into row order and back."""

    def __init__(self, schedule: Schedule, situation: Situation, empty: Empty) -> None:
        self.schedule, self.situation, self.empty = schedule, situation, empty
        self.order: RowOrder = schedule.order
        self.subsets = {
            k: (t if k.endswith(OF_LEAVES) else self._rows_of(t), n) for k, (t, n) in situation.subsets.items()
        }

    def _rows_of(self, per_vertex: Tensor) -> Tensor:
        ids = self.order.vertex_ids
        return per_vertex if ids is None else per_vertex.index_select(0, ids)

    def extents(self, phase: Phase) -> Sequence[Extent]:
        kept: dict[Any, Any] = self.schedule.topology.kept
        key = ("extents", self.schedule, phase.is_loop, phase.part)
        made = kept.get(key)
        if made is None or self.subsets:
            made = kept[key] = self._make_extents(phase)
        return made[::-1] if phase.is_reverse else made

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
        if name.startswith(("saved:", "state")):
            return given
        ids = self._permutation(item.value, inward=True)
        return given if ids is None else self._taken(given, ids)

    def copied(self, tensor: Tensor) -> Tensor:
        """The same in memory of its own, without gaps."""
        if tensor.device.type != "cpu":
            return tensor.clone(memory_format=torch.contiguous_format)
        return self.empty(tensor.shape, tensor.dtype).copy_(tensor)

    def _taken(self, tensor: Tensor, ids: Tensor) -> Tensor:
        """Rows ``ids``."""
        if tensor.device.type != "cpu" or tensor.requires_grad:
            return tensor.index_select(0, ids)
        room = self.empty((ids.shape[0], *tensor.shape[1:]), tensor.dtype)
        return torch.index_select(tensor, 0, ids, out=room)

    def bring_out(self, value: Value, tensor: Tensor, *, permute: bool) -> Tensor:
        ids = self._permutation(value, inward=False) if permute else None
        if ids is not None and value.row_dim is not None:
            rows = value.shape[value.row_dim]
            assert isinstance(rows, Rows)
            if rows.times != 1:
                split = tensor.unflatten(value.row_dim, (-1, rows.times))
                return split.index_select(value.row_dim, ids).flatten(value.row_dim, value.row_dim + 1)
            return tensor.index_select(value.row_dim, ids) if value.row_dim else self._taken(tensor, ids)
        return tensor

    def _permutation(self, value: Value, *, inward: bool) -> Tensor | None:
        order = self.order
        if value.space in (VERTEX, SOURCE) and self.schedule.policy != "once":
            return order.vertex_ids if inward else order.vertex_rows
        if value.space == EDGE:
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
        assert name == "$seed" and self.situation.seed is not None, name
        return send(self.situation.seed, order.src_rows.device)

    def _user_ids(self, name: str) -> Tensor:
        """Ids as the user knows them: a part of a graph remembers those of the whole."""
        topology, order = self.schedule.topology, self.order
        kind = "edge" if name == "$edge_ids" else "vertex"
        if name == "$src_ids":  # rows of sources are never numbered anew
            rows = order.src_rows
            ids = rows if order.vertex_ids is None else order.vertex_ids.index_select(0, rows)
            return ids.to(topology.src.dtype)
        count = order.src_rows.shape[0] if kind == "edge" else order.in_ptr.shape[0] - 1
        own = order.edge_ids if kind == "edge" else order.vertex_ids
        ids = torch.arange(count, device=order.src_rows.device) if own is None else own
        original = topology.original_ids.get(kind)
        ids = ids if original is None else original.index_select(0, ids)
        ids = ids.index_select(0, order.dst_rows) if name == "$dst_ids" else ids
        return ids.to(topology.src.dtype)
