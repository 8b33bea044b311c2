"""Footprint: the most memory that one worker needs at once.

Takes: an Account, or a whole TrainingStep. Gives: bytes, by what they are for; tempo: once a plan.
Source: Tofu sections 6 and 7.1: original order, buffers freed after their last reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.ir.program import Value
from vgraph.ir.sharding import ShardingPlan, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl import is_view, reads_values
from vgraph.partition.account import Account, Placements, account, share


@dataclass(frozen=True)
class Footprint:
    """Bytes of one worker at the peak: ``state`` (parameters, gradients, history, batch), the rest, the copies."""

    state: float
    activations: float
    copies: float

    @property
    def total(self) -> float:
        return self.state + self.activations + self.copies


def whole_footprint(step: TrainingStep) -> Footprint:
    """One worker that has everything."""
    empty = ShardingPlan((), tuple(() for _ in step.ops), {i.value.id: () for i in step.program.inputs})
    return footprint(account(step, empty))


def footprint(book: Account, *, keeps_copies: bool = False) -> Footprint:
    """Liveness in the order of the Program; what is fetched lives as long as the op that reads it.

    ``keeps_copies``: until its last reader instead, so that nothing is fetched twice.
    """
    pass_ = _Liveness(book, keeps_copies)
    return pass_.run()


class _Liveness:
    def __init__(self, book: Account, keeps_copies: bool) -> None:
        self.book, self.step, self.keeps_copies = book, book.step, keeps_copies
        self.root: dict[int, int] = {}  # a view holds what it looks at
        self.last: dict[int, int] = {}
        held = [*self.step.parameters.values(), *self.step.gradients.values(), *self.step.buffers.values()]
        held += [*(h.before for h in self.step.history), *self.step.inputs]
        self.state = sum(map(book.held_bytes, held))
        self.pinned = {value.id for value in held}
        self.pinned |= {v.id for v in (*self.step.updated.values(), *self.step.new_buffers.values())}  # in place
        self.pinned |= {h.after.id for h in self.step.history}
        self.live = self.peak_live = self.copies_live = self.peak_copies = 0.0

    def run(self) -> Footprint:
        self._find_last()
        frees: dict[int, list[float]] = {}
        copy_frees: dict[int, list[float]] = {}
        known: set[tuple[int, Placements]] = set()
        readers = self._copy_readers() if self.keeps_copies else {}
        best = 0.0
        for number, op in enumerate(self.step.ops):
            fetched = 0.0
            for value, needed in self._fetches(number):
                amount = self.book.read_bytes(value, needed)
                if not self.keeps_copies:
                    fetched += amount
                elif (value.id, needed) not in known:
                    known.add((value.id, needed))
                    self.copies_live += amount
                    copy_frees.setdefault(readers[value.id, needed], []).append(amount)
            for value in op.results:
                if value.id not in self.pinned and self.root.get(value.id, value.id) == value.id:
                    amount = self.book.held_bytes(value)
                    self.live += amount
                    frees.setdefault(self.last.get(value.id, number), []).append(amount)
            if self.live + self.copies_live + fetched > best:
                best = self.live + self.copies_live + fetched
                self.peak_live, self.peak_copies = self.live, self.copies_live + fetched
            self.live -= sum(frees.pop(number, ()))
            self.copies_live -= sum(copy_frees.pop(number, ()))
        return Footprint(self.state, self.peak_live, self.peak_copies)

    def _find_last(self) -> None:
        for number, op in enumerate(self.step.ops):
            operands = list(op.operands())
            if is_view(op.target) and len(operands) == 1 and self._stays(op.results[0], operands[0]):
                base = self.root.get(operands[0].id, operands[0].id)
                self.root.update({value.id: base for value in op.results})
                if base in self.pinned:
                    self.pinned |= {value.id for value in op.results}
            for value in operands:
                self.last[self.root.get(value.id, value.id)] = number
        for value in self.step.program.outputs:
            if value is not None:
                self.last[self.root.get(value.id, value.id)] = len(self.step.ops)

    def _stays(self, result: Value, operand: Value) -> bool:
        """A view of a shard is one only if nothing moves."""
        axes = self.book.plan.axes
        one, other = self.book.homes[result.id], self.book.homes[operand.id]
        return share(one, axes) * result.row_bytes <= share(other, axes) * operand.row_bytes + 0.5

    def _fetches(self, number: int) -> list[tuple[Value, Placements]]:
        op, strategies = self.step.ops[number], self.book.plan.strategies[number]
        if not any(self.book.fetched[number]) and not self.keeps_copies:
            return []
        if not reads_values(op) or not strategies:
            return []
        found = [(v, _needed(strategies, p)) for p, v in enumerate(op.operands())]
        return [(v, n) for v, n in found if n != self.book.homes[v.id] and self._is_larger(v, n)]

    def _is_larger(self, value: Value, needed: Placements) -> bool:
        """A part of what the worker has is read where it lies."""
        return any(
            need != have and str(have) != "R" for need, have in zip(needed, self.book.homes[value.id], strict=True)
        )

    def _copy_readers(self) -> dict[tuple[int, Placements], int]:
        found: dict[tuple[int, Placements], int] = {}
        for number in range(len(self.step.ops)):
            for value, needed in self._fetches(number):
                found[value.id, needed] = number
        return found


def _needed(strategies: tuple[Strategy, ...], position: int) -> Placements:
    return tuple([s.inputs[position] for s in strategies])
