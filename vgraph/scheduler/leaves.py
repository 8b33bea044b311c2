"""Leaves: what a loop does where vertices have no in-edges, as a phase of its own.

Takes: Phases and what others read of them. Gives: Phases for leaves and for inner vertices. Runs once per function.
Half of the vertices of a binary tree are leaves: absent children are computed on one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from vgraph.ir.moves import AnyMove, Gather, PutSlot, Random, SegmentReduce, Select, TakeSlot
from vgraph.ir.operators import zero_by
from vgraph.ir.program import Dim, Op, Program, Rows, Value, map_leaves, needed_ops
from vgraph.ir.schedule import INNER_PART, LEAVES_PART, Phase
from vgraph.ir.space import EDGE, OF_LEAVES, SHARED, Space
from vgraph.ir.tdl.table import is_pointwise
from vgraph.ir.trampoline import Steps, run_deep
from vgraph.scheduler.at_leaves import draw_to_leaves, features_of_leaves
from vgraph.scheduler.degrees import Degrees, adds_number, find_degrees, find_last_rows, without_leaves, without_unread

aten = torch.ops.aten
_MOVES_ZEROS = frozenset(  # and computes nothing; what computes has a row in ir/operators.py
    "view _unsafe_view reshape t transpose permute unsqueeze squeeze cat split slice select expand".split()
)


class _CannotSplit(Exception):
    """An op of the loop that is not understood on leaves."""


def split_leaves(
    program: Program,
    phases: Sequence[Phase],
    zeros: frozenset[int] = frozenset(),
    inner_degree: int | None = None,
    unread: frozenset[int] = frozenset(),
    num_outputs: int = 0,
    draws: bool = False,
) -> tuple[tuple[Phase, ...], frozenset[int]]:
    """The phases with every loop divided, and ids of values known to be zero at leaves.

    ``zeros``: such values among the inputs. Sums over vertices of products with them leave the leaves out.
    ``inner_degree``: the in-degree of all other vertices, if they have only one. ``unread``: ids of
    outputs that nobody reads at leaves. ``num_outputs``: of outputs that the caller gets.
    ``draws``: where values are saved, products of what leaves alone were given are made with the leaves.
    """
    numbers = count(1 + max((v.id for v in _all_values(program, phases)), default=0))
    known = (program, zeros, inner_degree, unread, num_outputs, numbers)
    if draws and num_outputs < len(program.outputs):
        try:
            return _split(draw_to_leaves(program, phases, numbers), *known, may_fail=True)
        except _CannotSplit:  # leaves are like all others: the products would be made of all rows
            pass
    return _split(phases, *known, may_fail=False)


def _split(
    phases: Sequence[Phase],
    program: Program,
    zeros: frozenset[int],
    inner_degree: int | None,
    unread: frozenset[int],
    num_outputs: int,
    numbers: Iterator[int],
    *,
    may_fail: bool,
) -> tuple[tuple[Phase, ...], frozenset[int]]:
    ids = {item.value.id for item in program.inputs if item.name == "$in_degree"}
    degrees = find_degrees(phases, ids, inner_degree)
    found, known = list[Phase](), set(zeros)
    read = [_read_from_others(phase) for phase in phases]
    shared, features = _shared_zeros(phases), features_of_leaves(program)
    outside = {v.id for v in program.outputs if v is not None} | {c.source.id for c in program.carries}
    for index, phase in enumerate(phases):
        if not phase.is_loop or phase.is_serial:
            found.append(phase)
            continue
        wanted = outside.union(*(ids for i, ids in enumerate(read) if i != index), _read_whole(phase))
        try:
            both = (LEAVES_PART, INNER_PART)
            parts = [_Half(phase, part, wanted, numbers, degrees, features, set(shared)) for part in both]
            halves = [part.phases() for part in parts]
            found += [p for half in (halves[::-1] if phase.is_reverse else halves) for p in half]
            known |= parts[0].zeros - shared
        except _CannotSplit:
            if may_fail:
                raise
            found.append(phase)

    def new(like: Value, space: Space, shape: tuple[Dim, ...]) -> Value:
        return Value(next(numbers), space, like.dtype, shape, like.line)

    last = find_last_rows(program, num_outputs, found)
    trimmed = [p if p.is_loop else without_leaves(p, known | shared, degrees, new, last) for p in found]
    return without_unread(trimmed, outside - unread), frozenset(known)


def _all_values(program: Program, phases: Sequence[Phase]) -> Iterable[Value]:
    yield from (item.value for item in program.inputs)
    yield from (carry.target for carry in program.carries)
    for op in (*program.ops, *(op for phase in phases for op in phase.ops)):
        yield from op.results


def _read_from_others(phase: Phase) -> set[int]:
    made = {v.id for op in phase.ops for v in op.results}
    return {v.id for op in phase.ops for v in op.operands()} - made


def _read_whole(phase: Phase) -> set[int]:
    """What Moves along edges read of other frontiers."""
    return {v.id for op in phase.ops if getattr(op.target, "end", "dst") == "src" for v in op.operands()}


def _shared_zeros(phases: Sequence[Phase]) -> set[int]:
    """Numbers 0 that were recorded as tensors."""
    ops = (op for phase in phases for op in phase.ops if op.name == "scalar_tensor")
    return {op.results[0].id for op in ops if op.args[0] == 0}


@dataclass(eq=False)
class _Half:
    """A loop on leaves, or on the others. ``rows``: the one row, (1, ...), of values that are alike on all of them."""

    phase: Phase
    part: str
    wanted: set[int]
    numbers: Iterator[int]
    degrees: Degrees
    features: frozenset[int]  # of leaves alone
    zeros: set[int]
    rows: dict[int, Value] = field(default_factory=dict[int, Value])
    flat: dict[int, Value] = field(default_factory=dict[int, Value])
    spread: dict[int, Value] = field(default_factory=dict[int, Value])
    same: dict[int, Value] = field(default_factory=dict[int, Value])  # what a mask chooses for all
    before: list[Op] = field(default_factory=list[Op])
    ops: list[Op] = field(default_factory=list[Op])

    @property
    def degree(self) -> int | None:
        """The in-degree of all vertices here, if it is known."""
        return 0 if self.part == LEAVES_PART else self.degrees.inner

    def phases(self) -> list[Phase]:
        for op in self.phase.ops:
            self.add(self.renamed(op))
        for value in (v for op in self.phase.ops for v in op.results if v.id in self.wanted):
            if value.id in self.rows:
                self.ops.append(self.spread_op(value, value))
            elif value.id in self.same:
                self.ops.append(Op(aten.clone.default, (self.same[value.id],), {}, (value,), value.line))
        ops = needed_ops(self.ops, self.wanted)
        before = needed_ops(self.before, {v.id for op in ops for v in op.operands()})
        once = [Phase(before, is_loop=False)] if before else []
        return [*once, *([replace(self.phase, ops=ops, part=self.part)] if ops else [])]

    def renamed(self, op: Op) -> Op:
        if not any(v.id in self.same for v in op.operands()):
            return op

        def now(leaf: object) -> object:
            return self.same.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

        return op.mapped(now)

    def add(self, op: Op) -> None:
        if self.is_chosen(op):
            return
        if self.part == INNER_PART:
            self.add_inner(op)
        elif all(_is_edge(v) for v in op.results):
            return  # there are none
        else:
            self.add_leaf(op)

    def add_inner(self, op: Op) -> None:
        """What was given for leaves alone is one row here."""
        for value in op.operands():
            self.know(value)
        if isinstance(op.target, Gather) and op.args[0].id in self.features:
            self.constant(op.results[0], 0)
        elif isinstance(op.target, Gather) and op.target.end.endswith(OF_LEAVES):
            row = self.row_of(op.results[0])
            self.before.append(Op(aten.slice.Tensor, (op.args[0], 0, -1), {}, (row,), op.line))
        elif any(v.id in self.rows for v in op.operands()):
            self.map(op)
        else:
            self.ops.append(op)

    def add_leaf(self, op: Op) -> None:
        if isinstance(op.target, SegmentReduce) and op.target.end == "dst":
            self.fill(op)
        elif isinstance(op.target, TakeSlot):
            self.constant(op.results[0], 0)
        elif isinstance(op.target, SegmentReduce) and op.target.end == "src":
            self.ops.append(op)
        elif any(_is_edge(v) for v in (*op.operands(), *op.results)) or isinstance(op.target, PutSlot):
            raise _CannotSplit
        else:
            self.map(op)

    def fill(self, op: Op) -> None:
        """An empty segment."""
        self.constant(op.results[0], op.reduction.empty)
        for slots in op.results[1:]:
            self.constant(slots, -1)

    def is_chosen(self, op: Op) -> bool:
        """A mask that holds for all vertices here, or for none, chooses once."""
        if op.name != "where" or op.kwargs or not all(isinstance(v, Value) for v in op.args):
            return False
        truth = self.degrees.truth(op.args[0], self.degree)
        if truth is None:
            return False
        chosen, result = op.args[1 if truth else 2], op.results[0]
        if chosen.dtype != result.dtype or any(_is_edge(v) for v in op.results):
            return False
        if chosen.id in self.zeros and chosen.space == SHARED and result.row_dim == 0:
            self.constant(result, 0)
        elif chosen.shape == result.shape and chosen.id in self.rows:
            self.rows[result.id] = self.rows[chosen.id]
            self.zeros |= {result.id} if chosen.id in self.zeros else set()
        elif chosen.shape == result.shape:
            self.same[result.id] = chosen
        else:
            return False
        return True

    def constant(self, value: Value, number: float) -> None:
        if value.row_dim != 0:
            raise _CannotSplit
        row = self.row_of(value)
        self.before.append(Op(aten.full.default, (list(row.shape), number), {"dtype": value.dtype}, (row,), value.line))
        if number == 0:
            self.zeros.add(value.id)

    def row_of(self, value: Value) -> Value:
        row = self.rows[value.id] = self.new(value, SHARED, (1, *value.row_shape))
        return row

    def new(self, like: Value, space: Space, shape: tuple[Dim, ...]) -> Value:
        return Value(next(self.numbers), space, like.dtype, shape, like.line)

    # ------------------------------------------------------------ maps
    def map(self, op: Op) -> None:
        for value in op.operands():
            self.know(value)
        by_first = zero_by(op.name) == "first"
        if by_first and op.args[0].id in self.zeros and op.results[0].row_dim == 0:
            self.constant(op.results[0], 0)
            return
        rows = [v for v in op.operands() if v.row_dim is not None]
        if isinstance(op.target, Select) and rows[0].id in self.rows:
            self.rows[op.results[0].id] = self.rows[rows[0].id]
            return
        if self.is_zero_added(op):
            return
        alike = op.is_rowwise and not isinstance(op.target, AnyMove | Random) and all(v.id in self.rows for v in rows)
        plain = all(v.row_dim == 0 and isinstance(v.shape[0], Rows) for v in (*rows, *op.results))
        if alike and plain and all(v.space.kind == "vertex" for v in op.results):
            self.on_one_row(op)
        else:
            self.on_leaves(op)

    def is_zero_added(self, op: Op) -> bool:
        """A sum of what differs from leaf to leaf and of zeros is what it was."""
        if op.name != "add" or op.kwargs or len(op.args) != 2:
            return False
        given, result = [v for v in op.args if isinstance(v, Value)], op.results[0]
        others = [v for v in given if not (v.id in self.rows and v.id in self.zeros)]
        if len(given) != 2 or len(others) != 1 or others[0].id in self.rows or others[0].dtype != result.dtype:
            return False
        if others[0].shape != result.shape or others[0].space != result.space:
            return False
        self.same[result.id] = others[0]
        return True

    def know(self, value: Value) -> None:
        """What was computed of in-degrees before the loop is alike on all vertices of one in-degree."""
        run_deep(self._knowing(value))

    def _knowing(self, value: Value) -> Steps[None]:
        if value.id in self.rows or self.degree is None:
            return
        if value.id in self.degrees.ids:
            self.constant(value, self.degree)
        elif value.id in self.degrees.derived:
            op = self.degrees.derived[value.id]
            for operand in op.operands():
                yield self._knowing(operand)
            self.on_one_row(op)

    def on_one_row(self, op: Op) -> None:
        def now(leaf: object) -> object:
            if isinstance(leaf, Value):
                return self.rows.get(leaf.id, leaf)
            return leaf.times if isinstance(leaf, Rows) else leaf

        results = tuple(self.row_of(v) for v in op.results)
        if self.is_product_of_zeros(op, results[0]):
            return
        if any(v.shape[0] != Rows(v.space) for v in op.results):
            raise _CannotSplit  # several entries a row
        kwargs = {key: map_leaves(value, now) for key, value in op.kwargs.items()}
        self.before.append(replace(op, args=map_leaves(op.args, now), kwargs=kwargs, results=results))
        if _keeps_zero(op, self.zeros):
            self.zeros |= {v.id for v in op.results}

    def is_product_of_zeros(self, op: Op, row: Value) -> bool:
        """A product of a row of zeros is its bias, or zero, of whatever weights."""
        name = op.name
        if name not in ("mm", "addmm") or op.kwargs or op.args[-2].id not in self.zeros:
            return False
        if name == "mm":
            made = Op(aten.full.default, (list(row.shape), 0), {"dtype": row.dtype}, (row,), op.line)
            self.zeros.add(op.results[0].id)
        elif op.args[0].space == SHARED and (1, *op.args[0].shape) == row.shape:
            made = Op(aten.view.default, (op.args[0], list(row.shape)), {}, (row,), op.line)
        else:
            return False
        self.before.append(made)
        return True

    def on_leaves(self, op: Op) -> None:
        """An op that differs from leaf to leaf; rows that do not are broadcast by pointwise ops.

        All but one: what is written to has the shape of the result.
        """
        broadcasts = is_pointwise(op.target) and op.name != "copy"
        pointwise = broadcasts and all(v.row_dim == 0 for v in op.results)

        def now(leaf: object) -> object:
            if not isinstance(leaf, Value) or leaf.id not in self.rows:
                return leaf
            return self.flattened(leaf) if pointwise else self.spread_out(leaf)

        self.ops.append(op.mapped(now))

    def flattened(self, value: Value) -> Value:
        """One row without the dim of rows; a number keeps one dim, so that types are promoted as before."""
        if value.id not in self.flat:
            flat = self.flat[value.id] = self.new(value, SHARED, value.row_shape or (1,))
            self.before.append(Op(aten.view.default, (self.rows[value.id], list(flat.shape)), {}, (flat,), value.line))
        return self.flat[value.id]

    def spread_out(self, value: Value) -> Value:
        if value.id not in self.spread:
            self.spread[value.id] = self.new(value, value.space, value.shape)
            self.ops.append(self.spread_op(value, self.spread[value.id]))
        return self.spread[value.id]

    def spread_op(self, value: Value, result: Value) -> Op:
        return Op(aten.expand.default, (self.rows[value.id], list(value.shape)), {}, (result,), value.line)


def _is_edge(value: Value) -> bool:
    return value.space.kind == EDGE.kind


def _keeps_zero(op: Op, zeros: set[int]) -> bool:
    name, rows = op.name, [v for v in op.operands() if v.row_dim is not None]
    if name == "where":
        return all(v.id in zeros if isinstance(v, Value) else v == 0 for v in op.args[1:])
    by = "any" if name == "mm" else "all" if name in _MOVES_ZEROS else zero_by(name)
    if by not in ("all", "any") or not rows:
        return False
    if by == "any":
        return any(v.id in zeros for v in rows)
    return len(rows) == len(list(op.operands())) and all(v.id in zeros for v in rows) and not adds_number(op)
