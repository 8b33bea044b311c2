"""FrontierLoop: a phase's loop over frontiers as instructions for native code.

Takes: the units of a phase, tensors of all rows. Gives: rows written in place; tempo: once a function; every step.
Source: Cavs section 3.2; what lives within one batch of vertices stays in the cache (scratch of a thread).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.moves import Gather, PutSlot, TakeSlot
from vgraph.ir.program import EDGE, SHARED, Op, Value
from vgraph.ir.schedule import Phase, RowOrder, Schedule
from vgraph.ir.tdl import op_name
from vgraph.runtime.cpu import CpuKernel, index_tensors, pool_address
from vgraph.runtime.native import Native, call, table

KERNEL, GEMM, COPY, TAKE, PUT, GATHER = range(6)  # as in frontiers.h
CHUNK_BYTES = 1 << 19  # what a chunk of vertices touches should stay in the second cache
MOST_ROWS = 1024
CALLS = 2048  # frontiers a call: between calls Ctrl-C is heard
ALIGNMENT = 64

Steps = Sequence[tuple[Unit, Any]]


@dataclass(frozen=True)
class Place:
    """Where a value lies: some bytes into the rows of another one."""

    root: Value
    offset: int = 0


@dataclass(eq=False)
class FrontierLoop:
    """``steps`` of a phase, each of them a kernel, a product, or a copy of rows.

    ``kept``: what others need, in the arena; ``temporary``: what only a chunk of vertices needs, in scratch.
    """

    phase: Phase
    steps: Steps
    native: Native
    kept: set[int]
    places: dict[int, Place]
    temporary: tuple[Value, ...]
    outside: tuple[int, ...]
    flops: tuple[int, int] = (0, 0)  # a vertex, an edge
    row_bytes: int = 0  # what one vertex and two edges of it touch

    def refuse(self, env: Any, arena: Any, extents: Any) -> None:
        """There is no code in Python beside it."""
        raise AssertionError("a phase with a native loop runs as that alone")

    def __str__(self) -> str:
        steps = [f"  {u.op.target}" if u.op is not None else "  kernel" for u, _ in self.steps]
        return "\n".join([f"native loop, {len(self.temporary)} values in scratch", *steps]) + "\n"

    def run(self, env: Mapping[int, Tensor], arena: Mapping[int, Tensor], schedule: Schedule) -> None:
        """All frontiers of the phase's part of the schedule, in its direction."""
        first, stop = _range_of(self.phase, schedule)
        if first == stop:
            return
        order = schedule.order
        binding = _Binding(self, env, arena, order)
        chunk = max(1, min(MOST_ROWS, CHUNK_BYTES // max(self.row_bytes, 1)))
        slots = torch.get_num_threads()
        scratch_bytes = binding.lay_scratch(chunk, _most_edges(schedule, order, chunk))
        code = table(binding.words())
        v_ptr = _v_ptr(schedule)
        scratch = torch.empty(slots * scratch_bytes + ALIGNMENT, dtype=torch.uint8)
        aligned = -(-scratch.data_ptr() // ALIGNMENT) * ALIGNMENT
        busy = np.zeros(slots, np.int32)
        pool = pool_address() if slots > 1 else 0
        fixed = [code.ctypes.data, len(code), order.in_ptr.data_ptr(), aligned, scratch_bytes, chunk]
        fixed += [busy.ctypes.data, slots, pool, *self.flops]
        step = 1 if stop > first else -1
        for at in range(first, stop, step * CALLS):
            until = min(stop, at + CALLS) if step > 0 else max(stop, at - CALLS)
            call(self.native.frontiers, [*fixed, at, until, v_ptr.ctypes.data])


# ---------------------------------------------------------------- every step
@dataclass(eq=False)
class _Binding:
    """Instructions with addresses."""

    loop: FrontierLoop
    env: Mapping[int, Tensor]
    arena: Mapping[int, Tensor]
    order: RowOrder
    scratch: dict[int, int] = field(default_factory=dict[int, int])
    alive: list[Tensor | Any] = field(default_factory=list[Any])
    tensors: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def lay_scratch(self, num_vertices: int, num_edges: int) -> int:
        """Offsets of the temporary values in the scratch of a thread; its bytes."""
        end = 0
        for value in self.loop.temporary:
            self.scratch[value.id] = end
            size = (num_edges if value.space == EDGE else num_vertices) * value.row_bytes
            end += -(-size // ALIGNMENT) * ALIGNMENT
        return max(end, ALIGNMENT)

    def words(self) -> list[int]:
        made: list[int] = []
        for unit, runner in self.loop.steps:
            for words in [self.kernel(unit.kernel, runner)] if unit.kernel is not None else self.op(unit.op):
                made += [words[0] | (len(words) << 8), *words[1:]]
        return made

    def op(self, op: Op | None) -> list[list[int]]:
        assert op is not None
        name = op_name(op.target)
        if name in ("mm", "addmm"):
            return [self.product(op)]
        result = op.results[0]
        if name == "cat":
            return self.side_by_side(op)
        if name == "expand":
            place, edges = self.place(result), int(result.space == EDGE)
            return [[COPY, edges, result.row_bytes, self.address(op.args[0]), 0, edges, *place]]
        if isinstance(op.target, Gather):
            rows = index_tensors(self.order)[1].data_ptr()
            at_source = int(op.target.end == "src")
            return [[GATHER, at_source, result.row_bytes, rows, *self.place(op.args[0]), *self.place(result)]]
        if isinstance(op.target, (TakeSlot, PutSlot)):
            kind = TAKE if isinstance(op.target, TakeSlot) else PUT
            return [[kind, op.target.k, result.row_bytes, *self.place(op.args[0]), *self.place(result)]]
        return []  # a view

    def product(self, op: Op) -> list[int]:
        *bias, left, right = op.args
        result = op.results[0]
        packed = self.loop.native.pack(self.tensor(right))
        self.alive.append(packed)
        added = self.tensor(bias[0]).contiguous() if bias else None
        self.alive.append(added)
        k, n = right.shape
        words = [GEMM, int(result.space == EDGE), n, k, packed.data_ptr(), 0 if added is None else added.data_ptr()]
        return [*words, 0, result.dtype.itemsize, *self.place(left), *self.place(result)]

    def side_by_side(self, op: Op) -> list[list[int]]:
        result, made, offset = op.results[0], list[list[int]](), 0
        base, step, kind = self.place(result)
        for value in op.args[0]:
            to = (base + offset, step, kind)
            made.append([COPY, int(result.space == EDGE), value.row_bytes, *self.place(value), *to])
            offset += value.row_bytes
        return made

    def kernel(self, spec: KernelSpec, runner: CpuKernel) -> list[int]:
        given = [0, 0, 0, *(t.data_ptr() for t in index_tensors(self.order)), 0, 0]
        patches: list[int] = []
        for value in (*spec.loads, *spec.stores):
            base, step, kind = self.place(value) if value.space != SHARED else (self.address(value), 0, 0)
            if kind >= 2:
                patches += [len(given), base, step, kind]
            given.append(base)
        arguments = table(given)
        self.alive.append(arguments)
        function = _address(runner.function)
        return [KERNEL, function, arguments.ctypes.data, len(given), len(patches) // 4, *patches]

    # ------------------------------------------------------------ where values lie
    def place(self, value: Value) -> tuple[int, int, int]:
        """Base, bytes from row to row, and kind, as in frontiers.h."""
        at = self.loop.places[value.id]
        kind = int(at.root.space == EDGE)
        if at.root.id in self.scratch:
            return self.scratch[at.root.id] + at.offset, at.root.row_bytes, kind + 2
        return self.address(at.root) + at.offset, at.root.row_bytes, kind

    def address(self, value: Value) -> int:
        tensor = self.tensor(value)
        if not tensor.is_contiguous():
            tensor = self.tensors[value.id] = tensor.contiguous()
        return tensor.data_ptr()

    def tensor(self, value: Value) -> Tensor:
        if value.id not in self.tensors:
            self.tensors[value.id] = self.arena[value.id] if value.id in self.loop.kept else self.env[value.id]
        return self.tensors[value.id]


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _range_of(phase: Phase, schedule: Schedule) -> tuple[int, int]:
    """The frontiers of a phase: the first, and one past the last in its direction."""
    numbers = schedule.numbers(phase.part)
    return (numbers.stop - 1, numbers.start - 1) if phase.is_reverse else (numbers.start, numbers.stop)


def _v_ptr(schedule: Schedule) -> Any:
    return schedule.topology.keep(("v_ptr", schedule.policy), lambda: table([0, *(f.v1 for f in schedule.frontiers)]))


def _most_edges(schedule: Schedule, order: RowOrder, chunk: int) -> int:
    """The most in-edges that so many neighbouring vertices have."""

    def make() -> int:
        ptr = order.in_ptr.numpy()
        last = np.minimum(np.arange(len(ptr)) + chunk, len(ptr) - 1)
        return int((ptr[last] - ptr).max(initial=0))

    return schedule.topology.keep(("most edges", schedule.policy, chunk), make)
