"""Grouping: which ops of a phase become one kernel.

Takes: a Phase, and which values others need of it. Gives: Units in order; tempo: once a function.
Source: Cavs section 3.5 (maximal groups of fusible operators), extended across gathers and segment sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vgraph.fusion.expressions import has_expression
from vgraph.ir.kernel import KernelSpec, Unit
from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import EDGE, SHARED, SOURCE, VERTEX, Op, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.tdl import op_name

_MOST_FEATURES = 4096  # one row of scratch must lie on the stack
_FUSIBLE_MOVES = frozenset({Gather("src"), Gather("dst"), SegmentReduce("dst", "sum"), SegmentReduce("src", "sum")})


def group_ops(phase: Phase, wanted: set[int]) -> tuple[Unit, ...]:
    """The phase's ops as library calls and kernels; a kernel never waits for what it feeds."""
    return _Grouping(phase, wanted).units()


def slice_start(op: Op) -> dict[int, int] | None:
    """Result id to the start of its slice of the last dim, if that is what the op takes."""
    name, source = op_name(op.target), op.args[0] if op.args else None
    if not isinstance(source, Value) or source.row_dim != 0 or len(source.shape) < 2:
        return None
    rank = len(source.shape)
    if name == "split" and isinstance(op.args[1], int) and _dim(op, 2) % rank == rank - 1:
        return {value.id: op.args[1] * i for i, value in enumerate(op.results)}
    steps = len(op.args) > 4 and op.args[4] != 1
    if name == "slice" and not steps and _dim(op, 1) % rank == rank - 1 and len(op.args) > 2:
        start = op.args[2] or 0
        return {op.results[0].id: start} if isinstance(start, int) and start >= 0 else None
    return None


def _dim(op: Op, position: int) -> int:
    return op.args[position] if len(op.args) > position else op.kwargs.get("dim", 0)


def is_fusible(op: Op) -> bool:
    """Pointwise on rows of vertices or edges, or a Move that a kernel can make."""
    if op.target in _FUSIBLE_MOVES:
        value = op.results[0]
        return has_plain_rows(value) and value.dtype.is_floating_point and value.dtype.itemsize >= 4
    if not has_expression(op) or not has_plain_rows(op.results[0]):
        return False
    space, shape = op.results[0].space, op.results[0].row_shape
    return all(_can_load(value, space, shape) for value in op.operands())


def has_plain_rows(value: Value) -> bool:
    """Vertex or edge rows along the first dim, of a size that one row of scratch holds."""
    if value.space not in (VERTEX, EDGE, SOURCE) or value.shape[0] != Rows(value.space):
        return False
    return math.prod(value.row_shape) <= _MOST_FEATURES


def _can_load(value: Value, space: object, shape: tuple[int, ...]) -> bool:
    if value.space == space:
        return has_plain_rows(value) and _broadcasts(value.row_shape, shape)
    return value.space == SHARED and _broadcasts(value.row_shape, shape)


def _broadcasts(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(small) > len(shape):
        return False
    tail = shape[len(shape) - len(small) :]
    return all(a in (1, b) for a, b in zip(small, tail, strict=True))


@dataclass(frozen=True, eq=False)
class Cone:
    """Ops on edges that a sum over out-edges makes anew, and the values that they read."""

    ops: tuple[Op, ...]
    reads: tuple[Value, ...]


@dataclass(eq=False)
class _Grouping:
    phase: Phase
    wanted: set[int]
    makers: dict[int, Op] = field(default_factory=dict[int, Op])
    users: dict[int, list[Op]] = field(default_factory=dict[int, list[Op]])
    views: dict[int, Op] = field(default_factory=dict[int, Op])  # slices that kernels read in place
    level_of: dict[int, int] = field(default_factory=dict[int, int])  # id(op) to level
    fused: set[int] = field(default_factory=set[int])  # id(op)
    inlined: set[int] = field(default_factory=set[int])  # id(op) of wide ops, made slice by slice
    cones: dict[int, Cone] = field(default_factory=dict[int, "Cone"])  # id(op) of a sum over out-edges

    def __post_init__(self) -> None:
        for op in self.phase.ops:
            for value in op.results:
                self.makers[value.id] = op
            for value in op.operands():
                self.users.setdefault(value.id, []).append(op)
        for op in self.phase.ops:
            if slice_start(op) is not None:
                self.views.update((value.id, op) for value in op.results)
            elif is_fusible(op):
                self.fused.add(id(op))
        for op in self.phase.ops:
            if id(op) in self.fused and self._only_sliced(op):
                self.inlined.add(id(op))
        for op in self.phase.ops:
            cone = self._cone(op)
            if cone is not None:
                self.cones[id(op)] = cone
        self.cone_reads = {v.id for cone in self.cones.values() for v in cone.reads}
        for op in self.phase.ops:
            self.level_of[id(op)] = self._level(op)

    def _cone(self, op: Op) -> Cone | None:
        """What a sum over out-edges computes again for each edge, so that no edge row is stored."""
        if self.phase.is_loop or op.target != SegmentReduce("src", "sum") or id(op) not in self.fused:
            return None
        (source,) = op.operands()
        ops: dict[int, Op] = {}
        reads: dict[int, Value] = {}
        stack = [source]
        while stack:
            value = stack.pop()
            maker = self.makers.get(value.id)
            if value.space == EDGE and maker is not None and id(maker) in self.fused:
                ops[id(maker)] = maker
                below = list(maker.operands())
                if isinstance(maker.target, Gather):
                    reads.update((v.id, v) for v in below)
                else:
                    stack += below
            else:
                reads[value.id] = value
        makers = [self.makers.get(i) for i in reads]
        hidden = any(m is not None and (id(m) in self.inlined or slice_start(m)) for m in makers)
        return None if hidden or source.id in reads else Cone(tuple(ops.values()), tuple(reads.values()))

    def _only_sliced(self, op: Op) -> bool:
        """A wide result of which kernels read slices alone need not exist."""
        result = op.results[0]
        users = self.users.get(result.id, [])
        if result.id in self.wanted or not users or not has_expression(op):
            return False
        return all(u in map(self.views.get, (v.id for v in u.results)) and self._read_by_kernels(u) for u in users)

    def _read_by_kernels(self, view: Op) -> bool:
        return all(
            v.id not in self.wanted and all(id(u) in self.fused for u in self.users.get(v.id, [])) for v in view.results
        )

    def _level(self, op: Op) -> int:
        if id(op) in self.cones:
            makers = [self.makers.get(v.id) for v in self.cones[id(op)].reads]
            return max((self.level_of[id(m)] + (id(m) in self.fused) for m in makers if m is not None), default=0)
        is_mine = id(op) in self.fused
        shape = op.results[0].row_shape if is_mine and id(op) not in self.inlined else None
        return max((self._ready(value, op, shape) for value in op.operands()), default=0)

    def _ready(self, value: Value, reader: Op, shape: tuple[int, ...] | None) -> int:
        """The level at which a kernel of ``shape`` can read a value (None: the library, or a wide op)."""
        while value.id in self.views and id(reader) in self.fused:
            value = self.views[value.id].args[0]
        maker = self.makers.get(value.id)
        if maker is None or self._reads_earlier(reader):
            return 0
        level = self.level_of[id(maker)]
        if id(maker) not in self.fused or id(maker) in self.inlined:
            return level
        same_loop = (value.space == SOURCE) == (reader.results[0].space == SOURCE)
        same_rows = shape == value.row_shape and same_loop  # a wide op is made in its readers' kernel
        together = id(reader) in self.fused and same_rows and not self._needs_all(reader)
        return level if together else level + 1

    def _reads_earlier(self, reader: Op) -> bool:
        """In a loop, Moves over absolute rows read what other frontiers left."""
        return self.phase.is_loop and self._needs_all(reader)

    @staticmethod
    def _needs_all(reader: Op) -> bool:
        return reader.target in (Gather("src"), SegmentReduce("src", "sum"))

    # ------------------------------------------------------------ the units
    def units(self) -> tuple[Unit, ...]:
        by_level: dict[int, list[Op]] = {}
        for op in self.phase.ops:
            by_level.setdefault(self.level_of[id(op)], []).append(op)
        made: list[Unit] = []
        for level in sorted(by_level):
            ops = by_level[level]
            made += [Unit(op=op) for op in ops if id(op) not in self.fused and self._is_needed(op)]
            made += [Unit(kernel=spec) for spec in self._kernels(ops)]
        return tuple(made)

    def _is_needed(self, op: Op) -> bool:
        """Slices that only kernels read are read in place."""
        return op.results[0].id not in self.views or not self._read_by_kernels(op)

    def _kernels(self, ops: list[Op]) -> list[KernelSpec]:
        by_shape: dict[tuple[bool, tuple[int, ...]], list[Op]] = {}
        for op in ops:
            if id(op) in self.fused and id(op) not in self.inlined:
                result = op.results[0]
                by_shape.setdefault((result.space == SOURCE, result.row_shape), []).append(op)
        specs = [self._spec(group, *key) for key, group in by_shape.items()]
        return [spec for spec in specs if spec.stores]  # else others compute it where they need it

    def _spec(self, group: list[Op], is_source: bool, shape: tuple[int, ...]) -> KernelSpec:
        inner = {v.id for op in group for v in op.results}
        ops, loads = self._with_inlined(group), dict[int, Value]()
        made = {v.id for op in ops for v in op.results}
        for op in ops:
            for value in op.operands():
                stored_here = self._needs_all(op) and id(op) not in self.cones and value.id in inner
                if value.id not in made or stored_here:
                    loads[value.id] = value
        stores = [v for op in group for v in op.results if self._is_stored(v, inner)]
        return KernelSpec(tuple(ops), tuple(loads.values()), tuple(stores), shape, is_source)

    def _with_inlined(self, group: list[Op]) -> list[Op]:
        """The group with the slices it reads and the wide ops below them, in dataflow order."""
        needed = {id(op) for op in group}
        needed |= {id(below) for op in group if id(op) in self.cones for below in self.cones[id(op)].ops}
        stack = list(group)
        while stack:
            for value in stack.pop().operands():
                below = self.views.get(value.id) or self.makers.get(value.id)
                if (
                    below is not None
                    and id(below) not in needed
                    and (value.id in self.views or id(below) in self.inlined)
                ):
                    needed.add(id(below))
                    stack.append(below)
        return [op for op in self.phase.ops if id(op) in needed]

    def _is_stored(self, value: Value, inner: set[int]) -> bool:
        if value.id in self.wanted or value.id in self.cone_reads:
            return True
        for user in self.users.get(value.id, []):
            if id(user) in self.cones:
                continue
            if id(user) not in self.fused and not (user.results[0].id in self.views and self._read_by_kernels(user)):
                return True
            ends = user.results if user.results[0].id in self.views else ()
            readers = [r for v in ends for r in self.users.get(v.id, [])] or [user]
            for reader in readers:
                outside = id(reader) not in self.inlined and reader.results[0].id not in inner
                if outside or self._needs_all(reader) or id(reader) in self.inlined:
                    return True
        return False
