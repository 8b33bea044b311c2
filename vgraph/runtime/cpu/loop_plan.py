"""Loop plan: whether native code can run a loop, and where each of its values lies.

Takes: a phase as kernels and library ops, what others need. Gives: a LoopBody, or None. Runs once per function.
Source: Cavs section 3.3 (dynamic tensors); a value that one chunk of vertices alone needs is no dynamic tensor.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.loop_body import LoopBody, Spot
from vgraph.ir.moves import Gather, PutSlot, SegmentReduce, TakeSlot
from vgraph.ir.program import Op, Rows, Value, op_name
from vgraph.ir.schedule import LEAVES_PART, Phase
from vgraph.ir.space import EDGE, OF_LEAVES, SHARED, SOURCE, VERTEX
from vgraph.runtime.cpu.frontier_loop import FrontierLoop, Steps
from vgraph.runtime.cpu.native import FLOATS, Native

logger = logging.getLogger("vgraph")


ON_DEVICE = (*FLOATS, torch.bfloat16, torch.float16)  # dtypes of products on a GPU; sums have 32 bits


class _Unsupported(Exception):
    """An op that native code cannot run."""


def plan_loop(phase: Phase, steps: Steps, wanted: Iterable[int], native: Native) -> FrontierLoop | None:
    """The loop of a phase on a CPU, or None where an op of it is none that native code can run."""
    body = plan_body(phase, [unit for unit, _ in steps], wanted)
    return None if body is None else FrontierLoop(body, steps, native)


def plan_body(
    phase: Phase, units: Sequence[Unit], wanted: Iterable[int], floats: Container[torch.dtype] = FLOATS
) -> LoopBody | None:
    """What a frontier does, or None where an op of it is none that native code can run.

    ``floats``: the dtypes of products.
    """
    if not phase.is_loop or phase.is_serial or any(_is_typed(v) for op in phase.ops for v in op.results):
        return None
    try:
        return _Planner(phase, units, set(wanted), floats).body()
    except _Unsupported as reason:
        logger.info("a loop over frontiers runs in Python: %s", reason)
        return None


def _is_typed(value: Value) -> bool:
    return value.space.kind in ("vertex", "edge") and bool(value.space.key)


@dataclass(eq=False)
class _Planner:
    phase: Phase
    units: Sequence[Unit]
    wanted: set[int]
    floats: Container[torch.dtype]
    places: dict[int, Spot] = field(default_factory=dict[int, Spot])
    made: dict[int, Value] = field(default_factory=dict[int, Value])
    outside: dict[int, Value] = field(default_factory=dict[int, Value])
    whole: set[int] = field(default_factory=set[int])  # read at rows of other frontiers
    flops: list[int] = field(default_factory=lambda: [0, 0])
    across: dict[int, Value] = field(init=False)  # by id of rows of edges, or of vertices: the other rows that they are

    def __post_init__(self) -> None:
        self.across = {op.args[0].id: op.results[0] for op in self.phase.ops if is_across(op)}

    def body(self) -> LoopBody:
        for unit in self.units:
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
        return LoopBody(
            phase=self.phase,
            units=tuple(self.units),
            kept=frozenset(kept),
            places=self.places,
            temporary=temporary,
            outside=tuple(self.outside),
            flops=(self.flops[0], self.flops[1]),
            row_bytes=row_bytes,
            whole=frozenset(self.whole),
        )

    def kernel(self, spec: KernelSpec) -> None:
        for value in spec.loads:
            self.read(value)
        for op in spec.ops:
            for value in op.operands():
                place = spec.places.get(value.id)
                if op.target == SegmentReduce("src", "sum") or (place is not None and place.end not in ("", spec.own)):
                    self.whole.add(value.id if place is None else place.base.id)
        for value in spec.stores:
            self.across.pop(value.id, None)
            self.make(value)
            self.flops[value.space == EDGE] += 50 * math.prod(value.row_shape)

    def op(self, op: Op) -> None:
        name = op_name(op.target)
        if self.view(op, name):
            return
        if name in ("mm", "addmm") and not op.kwargs and len(op.args) == (2 if name == "mm" else 3):
            self.product(op)
        elif self.copies_rows(op, name):
            for value in op.operands():
                self.read(value)
            self.make(op.results[0])
        else:
            raise _Unsupported(f"{name} is none of the operators of native code ({op.line})")

    def view(self, op: Op, name: str) -> bool:
        """An op that only says where its results lie."""
        starts = slice_starts(op)
        if starts is not None:
            place = self.read(op.args[0])
            for value, start in zip(op.results, starts, strict=True):
                self.places[value.id] = Spot(place.root, place.offset + start * value.dtype.itemsize)
        elif is_across(op):
            place = self.places.get(op.args[0].id)
            if place is None or place.root.id != op.results[0].id:
                raise _Unsupported(f"what a kernel makes is rows of {op.results[0].space}, too ({op.line})")
        elif name in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze") and self.is_same_rows(op):
            self.places[op.results[0].id] = self.read(op.args[0])
        elif isinstance(op.target, Gather) and op.target.end.endswith(OF_LEAVES):
            given = op.args[0]
            if self.phase.part != LEAVES_PART or given.row_dim != 0:
                raise _Unsupported("it reads at inner vertices what leaves were given")
            self.outside[given.id] = given
            self.places[op.results[0].id] = self.places[given.id] = Spot(given)  # rows of leaves come first
        else:
            return False
        return True

    def copies_rows(self, op: Op, name: str) -> bool:
        if op.target == Gather("src"):
            self.whole.add(self.read(op.args[0]).root.id)
        is_move = isinstance(op.target, (TakeSlot, PutSlot)) and not op.target.part
        return (
            is_move
            or op.target in (Gather("src"), Gather("dst"))
            or (name == "cat" and is_rows_side_by_side(op))
            or (name == "expand" and is_one_row(op))
        )

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
        if not plain or result.dtype not in self.floats or any(len(b.shape) != 1 or b.space != SHARED for b in bias):
            raise _Unsupported(f"a product of other shapes than rows times a matrix ({op.line})")
        if any(b.shape[0] != right.shape[1] for b in bias) or right.row_dim is not None:
            raise _Unsupported(f"a product of other shapes than rows times a matrix ({op.line})")
        for value in (*bias, left, right):
            self.read(value)
        self.make(result)
        self.flops[result.space == EDGE] += 2 * math.prod(right.row_shape)

    def read(self, value: Value) -> Spot:
        if value.space not in (VERTEX, EDGE, SOURCE, SHARED):
            raise _Unsupported(f"it reads rows of {value.space} ({value.line})")
        if value.id not in self.places:
            self.outside[value.id] = value
            self.places[value.id] = Spot(value)
        return self.places[value.id]

    def make(self, value: Value) -> None:
        if value.row_dim != 0 or value.shape[0] != Rows(value.space) or value.space not in (VERTEX, EDGE, SOURCE):
            raise _Unsupported(f"it makes rows of {value.space} ({value.line})")
        root = self.across.get(value.id, value)
        self.made[root.id] = root
        self.places[value.id] = self.places[root.id] = Spot(root)


def is_across(op: Op) -> bool:
    """Whether an op takes the rows of all in-edges of a vertex as one row of it, or a row as theirs."""
    given, result = (*op.operands(), None)[0], op.results[0]
    spaces = None if given is None or op_name(op.target) != "view" else (given.space, result.space)
    return spaces in ((EDGE, VERTEX), (VERTEX, EDGE))


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
