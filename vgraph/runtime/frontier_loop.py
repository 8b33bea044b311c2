"""FrontierLoop: a phase's loop over frontiers as instructions for native code.

Takes: the units of a phase, tensors of all rows. Gives: rows written in place; tempo: once a function; every step.
Source: Cavs section 3.2; what lives within one batch of vertices stays in the cache (scratch of a thread).
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.moves import Gather, PutSlot, SegmentReduce, TakeSlot
from vgraph.ir.program import EDGE, SHARED, SOURCE, VERTEX, Op, Rows, Value
from vgraph.ir.schedule import Phase, RowOrder, Schedule
from vgraph.ir.tdl import op_name
from vgraph.runtime.cpu import CpuKernel, index_tensors, pool_address
from vgraph.runtime.native import FLOATS, Native, call, table

logger = logging.getLogger("vgraph")

KERNEL, GEMM, COPY, TAKE, PUT, GATHER = range(6)  # as in frontiers.h
CHUNK_BYTES = 1 << 19  # what a chunk of vertices touches should stay in the second cache
MOST_ROWS = 1024
CALLS = 2048  # frontiers a call: between calls Ctrl-C is heard
ALIGNMENT = 64

Steps = Sequence[tuple[Unit, Any]]


class _Unsupported(Exception):
    """An op that native code cannot run."""


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


def plan_loop(phase: Phase, steps: Steps, wanted: Iterable[int], native: Native) -> FrontierLoop | None:
    """The loop of a phase, or None where an op of it is none that native code can run."""
    if not phase.is_loop or phase.is_serial or any(_is_typed(v) for op in phase.ops for v in op.results):
        return None
    try:
        return _Planner(phase, steps, set(wanted), native).loop()
    except _Unsupported as reason:
        logger.info("a loop over frontiers runs in Python: %s", reason)
        return None


def _is_typed(value: Value) -> bool:
    return value.space.kind in ("vertex", "edge") and bool(value.space.key)


@dataclass(eq=False)
class _Planner:
    phase: Phase
    steps: Steps
    wanted: set[int]
    native: Native
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    made: dict[int, Value] = field(default_factory=dict[int, Value])
    outside: dict[int, Value] = field(default_factory=dict[int, Value])
    whole: set[int] = field(default_factory=set[int])  # read at rows of other frontiers
    flops: list[int] = field(default_factory=lambda: [0, 0])

    def loop(self) -> FrontierLoop:
        for unit, _ in self.steps:
            if unit.kernel is not None:
                self.kernel(unit.kernel)
            elif unit.op is not None:
                self.op(unit.op)
        if any(i in self.wanted and place.root.id != i for i, place in self.places.items()):
            raise _Unsupported("others read a view of what it makes")
        kept = (self.wanted | self.whole) & self.made.keys()
        temporary = tuple(v for i, v in self.made.items() if i not in kept)
        touched = {**self.made, **self.outside}.values()
        row_bytes = sum(v.row_bytes * (2 if v.space == EDGE else 1) for v in touched if v.space != SHARED)
        return FrontierLoop(
            self.phase, self.steps, self.native, kept, self.places, temporary, tuple(self.outside),
            (self.flops[0], self.flops[1]), row_bytes,
        )  # fmt: skip

    def kernel(self, spec: KernelSpec) -> None:
        for value in spec.loads:
            self.read(value)
        for op in spec.ops:
            for value in op.operands():
                place = spec.places.get(value.id)
                if op.target == SegmentReduce("src", "sum") or (place is not None and place.end not in ("", spec.own)):
                    self.whole.add(value.id if place is None else place.base.id)
        for value in spec.stores:
            self.make(value)
            self.flops[value.space == EDGE] += 50 * math.prod(value.row_shape)

    def op(self, op: Op) -> None:
        name = op_name(op.target)
        starts = slice_starts(op)
        if starts is not None:
            place = self.read(op.args[0])
            for value, start in zip(op.results, starts, strict=True):
                self.places[value.id] = Place(place.root, place.offset + start * value.dtype.itemsize)
        elif name in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze") and self.is_same_rows(op):
            self.places[op.results[0].id] = self.read(op.args[0])
        elif name in ("mm", "addmm") and not op.kwargs and len(op.args) == (2 if name == "mm" else 3):
            self.product(op)
        elif name == "cat" and is_rows_side_by_side(op):
            for value in op.args[0]:
                self.read(value)
            self.make(op.results[0])
        elif name == "expand" and is_one_row(op):
            self.read(op.args[0])
            self.make(op.results[0])
        elif op.target in (Gather("src"), Gather("dst")):
            at = self.read(op.args[0])
            if op.target.end == "src":
                self.whole.add(at.root.id)
            self.make(op.results[0])
        elif isinstance(op.target, (TakeSlot, PutSlot)) and not op.target.part:
            self.read(op.args[0])
            self.make(op.results[0])
        else:
            raise _Unsupported(f"{name} is none of the operators of native code ({op.line})")

    def is_same_rows(self, op: Op) -> bool:
        given, result = op.args[0], op.results[0]
        plain = all(v.row_dim == 0 and v.shape[0] == Rows(v.space) for v in (given, result))
        if not plain or given.row_bytes != result.row_bytes:
            return False
        place = self.read(given)
        return place.offset == 0 and place.root.row_bytes == given.row_bytes

    def product(self, op: Op) -> None:
        *bias, left, right = op.args
        result = op.results[0]
        plain = left.row_dim == 0 and right.space == SHARED and len(left.shape) == 2 == len(right.shape)
        if not plain or result.dtype not in FLOATS or any(len(b.shape) != 1 or b.space != SHARED for b in bias):
            raise _Unsupported(f"a product of other shapes than rows times a matrix ({op.line})")
        if any(b.shape[0] != right.shape[1] for b in bias) or right.row_dim is not None:
            raise _Unsupported(f"a product of other shapes than rows times a matrix ({op.line})")
        for value in (*bias, left, right):
            self.read(value)
        self.make(result)
        self.flops[result.space == EDGE] += 2 * math.prod(right.row_shape)

    def read(self, value: Value) -> Place:
        if value.space not in (VERTEX, EDGE, SOURCE, SHARED):
            raise _Unsupported(f"it reads rows of {value.space} ({value.line})")
        if value.id not in self.places:
            self.outside[value.id] = value
            self.places[value.id] = Place(value)
        return self.places[value.id]

    def make(self, value: Value) -> None:
        if value.row_dim != 0 or value.shape[0] != Rows(value.space) or value.space not in (VERTEX, EDGE, SOURCE):
            raise _Unsupported(f"it makes rows of {value.space} ({value.line})")
        self.made[value.id] = value
        self.places[value.id] = Place(value)


def slice_starts(op: Op) -> list[int] | None:
    """Where each result begins in the last dim of rows (rows, width), if that is all an op does."""
    name, source = op_name(op.target), op.args[0] if op.args else None
    if name not in ("split", "slice") or not isinstance(source, Value) or source.row_dim != 0 or len(source.shape) != 2:
        return None
    args = (*op.args, *(None,) * 5)
    if name == "split":
        width, at_end = args[1], (args[2] or 0) in (1, -1) and not op.kwargs
        return [width * i for i in range(len(op.results))] if at_end and isinstance(width, int) else None
    at_end = (args[1] or 0) in (1, -1) and args[4] in (None, 1) and not op.kwargs
    start = args[2] or 0
    return [start] if at_end and isinstance(start, int) and start >= 0 else None


def is_one_row(op: Op) -> bool:
    """Whether an expand repeats one row (1, ...) for every row of its result."""
    row, result = op.args[0], op.results[0]
    return row.space == SHARED and row.shape == (1, *result.row_shape) and result.row_dim == 0


def is_rows_side_by_side(op: Op) -> bool:
    """Whether a cat joins rows (rows, width) of one space along the last dim."""
    values, result = op.args[0], op.results[0]
    at_end = len(op.args) > 1 and op.args[1] in (1, -1) and len(result.shape) == 2
    return at_end and all(v.space == result.space and v.row_dim == 0 and v.dtype == result.dtype for v in values)


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
