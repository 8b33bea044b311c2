"""All slots: the rows of all in-edges side by side, where every vertex of a loop has as many of them.

Takes: Phases for inner vertices, of which the in-degree is known. Gives: the same with a view in the place of copies.
Runs once per function.
In-edges of a vertex come one after the other, so that their rows in a row are what taking every slot and joining them
gives, and what is put to every slot and added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from vgraph.ir.moves import Gather, PutSlot, TakeSlot
from vgraph.ir.program import Op, Program, Rows, Value, needed_ops, op_name
from vgraph.ir.schedule import INNER_PART, Phase
from vgraph.ir.space import EDGE, VERTEX

_view = torch.ops.aten.view.default


def join_slots(program: Program, phases: tuple[Phase, ...], degree: int | None) -> tuple[Phase, ...]:
    """``degree``: the in-degree of all vertices but leaves, where they have only one; above 1 something is joined."""
    if degree is None or degree < 2:
        return phases
    outside = {v.id for v in program.outputs if v is not None} | {carry.source.id for carry in program.carries}
    reads = [{v.id for op in phase.ops for v in op.operands()} for phase in phases]
    found = list[Phase]()
    for index, phase in enumerate(phases):
        if phase.part == INNER_PART and phase.is_loop and not phase.is_serial:
            wanted = outside.union(*reads[:index], *reads[index + 1 :])
            phase = replace(phase, ops=_Joining(phase, degree, wanted).ops())
        found.append(phase)
    return tuple(found)


@dataclass(eq=False)
class _Joining:
    """``wanted``: ids of what others than the phase read."""

    phase: Phase
    degree: int
    wanted: set[int]
    makers: dict[int, Op] = field(init=False)
    users: dict[int, list[Op]] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = {v.id: op for op in self.phase.ops for v in op.results}
        self.users = {}
        for op in self.phase.ops:
            for value in op.operands():
                self.users.setdefault(value.id, []).append(op)

    def ops(self) -> tuple[Op, ...]:
        found = tuple(self.taken(op) or self.put(op) or op for op in self.phase.ops)
        if all(one is other for one, other in zip(found, self.phase.ops, strict=True)):
            return self.phase.ops
        left = {v.id for op in self.phase.ops for v in op.results if v.id not in self.users}
        return tuple(needed_ops(found, self.wanted | left))

    def taken(self, op: Op) -> Op | None:
        """Every slot's row, joined."""
        parts = list(op.operands()) if op_name(op.target) == "cat" and _is_along_features(op) else []
        takes = [self.maker_for(part, op) for part in parts]
        if [None if take is None else take.target for take in takes] != [TakeSlot(k) for k in range(self.degree)]:
            return None
        rows = {v.id: v for take in takes if take is not None for v in take.operands()}
        given = next(iter(rows.values()))
        is_alone = len(rows) == 1 and len(self.users[given.id]) == self.degree and self.is_inner(given)
        is_gathered = is_alone and self.makers[given.id].target == Gather("src")
        return self.across(given, op) if is_gathered and _is_plain(given, EDGE) else None

    def put(self, op: Op) -> Op | None:
        """Every slot's part of a row, put there and added up."""
        puts = self.puts_in(op) if op_name(op.target) == "add" and _is_plain(op.results[0], EDGE) else None
        if puts is None or sorted(k for k, _ in puts) != list(range(self.degree)):
            return None
        (width,) = op.results[0].row_shape
        wholes = [self.whole_of(part, k, width) for k, part in puts]
        given = wholes[0]
        if given is None or any(one is None or one.id != given.id for one in wholes):
            return None
        return self.across(given, op) if self.is_product(given, op.results[0]) else None

    def puts_in(self, op: Op) -> list[tuple[int, Value]] | None:
        """The slots that a sum puts rows to, with the rows; None if it adds anything else."""
        if op.kwargs or len(op.args) != 2 or not all(isinstance(v, Value) and self.is_inner(v) for v in op.args):
            return None
        found = list[tuple[int, Value]]()
        for value in op.args:
            maker = self.maker_for(value, op)
            if maker is None:
                return None
            if isinstance(maker.target, PutSlot) and not maker.target.part:
                found.append((maker.target.k, maker.args[0]))
            elif op_name(maker.target) == "add" and (more := self.puts_in(maker)) is not None:
                found += more
            else:
                return None
        return found

    def whole_of(self, part: Value, k: int, width: int) -> Value | None:
        """The rows of which a part is the k-th of equal width, if nothing else reads that part."""
        maker = self.makers.get(part.id)
        if maker is None or op_name(maker.target) != "slice" or maker.kwargs or len(self.users[part.id]) != 1:
            return None
        given, *where = maker.args
        dim, start, stop, step = (*where, *(0, 0, None, 1)[len(where) :])
        is_kth = dim in (1, -1) and (start or 0) == k * width and stop == (k + 1) * width and step in (1, None)
        return given if is_kth and self.is_inner(part) else None

    def maker_for(self, value: Value, user: Op) -> Op | None:
        """What makes a value that nothing else reads."""
        is_alone = [id(op) for op in self.users[value.id]] == [id(user)]
        return self.makers.get(value.id) if is_alone and self.is_inner(value) else None

    def is_product(self, given: Value, result: Value) -> bool:
        """Whether it is a product, which writes rows wherever they lie, of as many numbers, and read for this alone."""
        is_alone = self.is_inner(given) and len(self.users[given.id]) == self.degree
        is_whole = all(map(_is_plain, (given, result), (VERTEX, EDGE)))
        fits = is_whole and given.row_bytes == self.degree * result.row_bytes
        return is_alone and fits and op_name(self.makers[given.id].target) in ("mm", "addmm")

    def is_inner(self, value: Value) -> bool:
        return value.id not in self.wanted and value.id in self.makers

    def across(self, given: Value, op: Op) -> Op:
        return Op(_view, (given, list(op.results[0].shape)), {}, op.results, op.line)


def _is_along_features(cat: Op) -> bool:
    result = cat.results[0]
    return (*cat.args[1:], cat.kwargs.get("dim", 0))[0] in (1, -1) and _is_plain(result, VERTEX)


def _is_plain(value: Value, space: object) -> bool:
    return value.space == space and len(value.shape) == 2 and value.shape[0] == Rows(value.space)
