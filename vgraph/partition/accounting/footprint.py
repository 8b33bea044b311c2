"""Footprint: the most memory that one worker needs at once, and what for.

Takes: a generated program, or an Account of a plan that has none yet. Gives: bytes by purpose. Runs once per plan.
Source: Tofu sections 6 and 7.1: original order, buffers freed after their last reader, updates in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from vgraph.ir.buffers import held_bytes, lifetimes, transit_bytes
from vgraph.ir.exchange import MOST_SLICES
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.program import Value
from vgraph.ir.sharding import Partial, ShardingPlan, Split
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.accounting.account import Account, Placements, moved, share
from vgraph.partition.accounting.readings import Numbers, readings_of


@dataclass(frozen=True)
class Footprint:
    """What ``Plan.footprint`` gives: the bytes of one worker at the peak, by what they are for.

    Attributes:
        state: parameters, buffers, history and the batch.
        gradients: those made so far.
        activations: all else.
        copies: what was fetched and is read again.
        transit: pieces that are being sent and received.

    Source: Wang, Huang and Li 2019 (Tofu), section 7 (memory of a worker).

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> plan = vgraph.parallelize(Model(8, 8), (torch.ones(4, 8),), num_workers=2)
        >>> int(plan.footprint.total) == plan.memory_per_worker
        True
    """

    state: float
    gradients: float
    activations: float
    copies: float
    transit: float = 0.0

    @property
    def total(self) -> float:
        """The bytes in all."""
        return self.state + self.gradients + self.activations + self.copies + self.transit

    def excess(self, whole: Footprint, num_workers: int) -> dict[str, float]:
        """By purpose, the bytes beyond this worker's part of the whole; their sum is that of the totals.

        Args:
            whole: what one worker would hold that has everything.
            num_workers: how many workers share it.

        Returns:
            Bytes by purpose; negative where the worker has less than its part.
        """
        names = ("state", "gradients", "activations", "copies", "transit")
        return {name: getattr(self, name) - getattr(whole, name) / num_workers for name in names}


def whole_plan(step: TrainingStep) -> ShardingPlan:
    """The plan of one worker that has everything."""
    return ShardingPlan((), tuple(() for _ in step.ops), {i.value.id: () for i in step.program.inputs})


_whole: WeakKeyDictionary[TrainingStep, Footprint] = WeakKeyDictionary()


def whole_footprint(step: TrainingStep) -> Footprint:
    """The unpartitioned step, in which nothing is fetched; found once, for many ask."""
    found = _whole.get(step)
    if found is None:
        nothing: tuple[tuple[float, ...], ...] = ((),) * len(step.ops)
        homes = dict.fromkeys(readings_of(step.program).number, ())
        alone = Account(step, whole_plan(step), nothing, nothing, homes, (), largest=(0.0,) * len(step.ops))
        found = _whole[step] = footprint(alone)
    return found


# ---------------------------------------------------------------- of a generated program
def program_footprint(parts: PartitionedProgram, step: TrainingStep) -> Footprint:
    """The worker that needs most, by the lifetimes of its own Program's buffers."""
    found = [_worker_footprint(parts, worker, step) for worker in range(len(parts.programs))]
    return max(found, key=lambda each: each.total)


def _worker_footprint(parts: PartitionedProgram, worker: int, step: TrainingStep) -> Footprint:
    program = parts.programs[worker]
    lives = lifetimes(program, parts.overwrites)
    held = held_bytes(program, lives)
    state = sum(given.value.row_bytes for given in program.inputs)
    if not held:
        return Footprint(state, 0, 0, 0)
    peak = max(range(len(held)), key=held.__getitem__)
    made = {value.id for value in step.gradients.values()}
    outputs = zip(step.program.outputs, program.outputs, strict=True)
    gradients = {local.id for value, local in outputs if value is not None and local is not None and value.id in made}
    sizes = {"gradients": 0, "activations": 0, "copies": 0}
    for buffer in lives.buffers:
        if buffer.first <= peak <= buffer.last:
            kind = "copies" if buffer.is_fetched else "activations"
            sizes["gradients" if buffer.value.id in gradients else kind] += buffer.value.row_bytes
    return Footprint(state, **sizes, transit=transit_bytes(program.ops[peak]))


# ---------------------------------------------------------------- of the books
Amounts = NDArray[np.float64]


@dataclass(frozen=True)
class Copy:
    """A shard that is fetched at op ``first`` and read again: it could be let go after each reader."""

    value: Value
    needed: Placements
    bytes: float
    readers: tuple[int, ...]


FETCHING, COMPUTING, BRINGING = range(3)  # the moments of an op: operands come, it runs, results go where they stay
MOMENTS = 3


class Books:
    """Bytes by purpose, moment by moment, as far as the books of a plan tell; no program is generated.

    An op has three moments, for what is in transit before it runs is gone when its results are made.
    """

    def __init__(self, book: Account) -> None:
        self.book, self.step, self.readings = book, book.step, readings_of(book.step.program)
        self.end = len(self.step.ops)
        self.held = self._held()
        self.state = sum(self.held[: self.readings.inputs].tolist())
        self.copies = list(self._copies())
        self.base = self._bases()
        self.last = np.zeros(
            len(self.readings.values), np.intp
        )  # the last moment in which a base is read where it lies
        self._find_last()
        self._update_in_place()
        moments = MOMENTS * (self.end + 1)
        self.changes = {name: np.zeros(moments + 1) for name in ("gradients", "activations", "copies")}
        self.transit = np.zeros(moments)
        self._fill()

    def quiet(self) -> Amounts:
        """All bytes but those in transit, moment by moment."""
        return self.state + np.cumsum(np.sum(list(self.changes.values()), axis=0))[:-1]

    def moving(self) -> Amounts:
        """Those in transit: of what travels in slices, those of one."""
        room = self.book.plan.room
        return self.transit.copy() if room is None else sliced(self.quiet(), self.transit, room)

    def peak(self) -> Footprint:
        moving = self.moving()
        at = int(np.argmax(self.quiet() + moving))
        sizes = {name: float(np.sum(change[: at + 1])) for name, change in self.changes.items()}
        return Footprint(self.state, **sizes, transit=float(moving[at]))

    def hold(self, kind: str, amount: float, first: int, last: int) -> None:
        """Counts bytes from one moment to another."""
        self.changes[kind][first] += amount
        self.changes[kind][last + 1] -= amount

    def _held(self) -> Amounts:
        """By value, its bytes on one worker; equal homes are often one object."""
        homes = [self.book.homes[value_id] for value_id in self.readings.number]
        shares = {id(home): share(home, self.book.plan.axes) for home in {id(home): home for home in homes}.values()}
        return self.readings.bytes * np.array([shares[id(home)] for home in homes])

    def _bases(self) -> Numbers:
        """By value, itself or what it is a view of: a view holds what it looks at."""
        wires = self.readings
        found = np.arange(len(wires.values))
        for number in wires.looks:
            if self._stays(number):
                first = wires.made[number]
                found[first : first + len(self.step.ops[number].results)] = found[wires.read[wires.first[number]]]
        return found

    def _find_last(self) -> None:
        """A value of which a copy is read is needed no longer than until that has come."""
        wires, base, last = self.readings, self.base, self.last
        where_it_lies = np.ones(len(wires.read), np.bool_)
        fetched = {(number, copy.value.id) for copy in self.copies for number in copy.readers}
        for number in {number for number, _ in self.book.copies}:
            for position, value in enumerate(self.step.ops[number].operands()):
                there, _ = self.book.copies.get((number, position), (value, ()))
                where_it_lies[wires.first[number] + position] = (number, there.id) not in fetched
        np.maximum.at(last, base[wires.read[where_it_lies]], MOMENTS * wires.reader[where_it_lies] + COMPUTING)
        np.maximum.at(last, base[wires.inputs :], MOMENTS * wires.maker + COMPUTING)
        for copy in self.copies:
            number = self.base_of(copy.value)
            last[number] = max(MOMENTS * copy.readers[0] + FETCHING, last[number])

    def _update_in_place(self) -> None:
        """What replaces an input lives until nothing reads that; other outputs to the end."""
        inputs, outputs, wires, last = self.step.program.inputs, self.step.program.outputs, self.readings, self.last
        replaced = {output: inputs[source].value for source, output in self.step.overwrites}
        end = MOMENTS * self.end
        for output, value in enumerate(outputs):
            if value is not None and output not in replaced:
                last[self.base_of(value)] = end
        for output, before in replaced.items():
            value = outputs[output]
            if value is not None and last[base := self.base_of(value)] != end:
                result = wires.number[value.id] - wires.inputs
                made = MOMENTS * wires.maker[result] + COMPUTING if result >= 0 else 0
                last[base] = max(made, last[wires.number[before.id]])

    def base_of(self, value: Value) -> int:
        """The number of the value, or of what it is a view of."""
        return int(self.base[self.readings.number[value.id]])

    def _stays(self, number: int) -> bool:
        """A view of a shard is one only if nothing moves, neither what it looks at nor what it is."""
        book = self.book
        value, needed = book.copies.get((number, 0), (None, ()))
        return not any(book.kept[number]) and (value is None or not _is_fetched(needed, book.homes[value.id]))

    def _copies(self) -> Iterator[Copy]:
        """Every shard that is fetched, with all that read it, or a view of it: the first of them fetches."""
        found: dict[tuple[int, Placements], list[int]] = {}
        values: dict[int, Value] = {}
        for (number, _), (value, needed) in self.book.copies.items():
            home = self.book.homes[value.id]
            if needed == home or not _is_fetched(needed, home):
                continue
            key = (value.id, needed)
            values[value.id] = value
            if (number, value.id) in self.book.plan.fetched_again and key in found and found[key][-1] != number:
                yield self._copy(value, needed, found.pop(key))
            found.setdefault(key, []).append(number)
        for (number, needed), readers in found.items():
            yield self._copy(values[number], needed, readers)

    def _casts(self) -> Iterator[Copy]:
        """What is made of a copy in another dtype, until it is read last."""
        found: dict[tuple[int, Placements], list[int]] = {}
        values: dict[int, Value] = {}
        for (number, position), (copy, _) in self.book.copies.items():
            value = list(self.step.ops[number].operands())[position]
            if value.dtype != copy.dtype:
                values[value.id] = value
                found.setdefault((value.id, self.book.rows[number].needed[position]), []).append(number)
        for (number, needed), readers in found.items():
            yield self._copy(values[number], needed, readers)

    def _copy(self, value: Value, needed: Placements, readers: list[int]) -> Copy:
        return Copy(value, needed, self.book.read_bytes(value, needed), tuple(dict.fromkeys(readers)))

    def _fill(self) -> None:
        book, wires, workers = self.book, self.readings, self.book.plan.num_workers
        first = MOMENTS * wires.maker + COMPUTING
        for number in [number for number, kept in enumerate(book.kept) if any(kept)]:
            at = MOMENTS * number
            self.transit[at + BRINGING] = 2 * sum(book.kept[number]) / workers
            for value_id, amount in self._made_elsewhere(number).items():
                first[wires.number[value_id] - wires.inputs] = at + BRINGING
                self.hold("activations", amount, at + COMPUTING, at + BRINGING)
        self.transit[FETCHING::MOMENTS][: self.end] = 2 * np.array(book.largest) / workers
        self._hold_results(first)
        for copy in (*self.copies, *self._casts()):
            first, last = copy.readers[0], copy.readers[-1]
            self.hold("copies", copy.bytes, MOMENTS * first + FETCHING, MOMENTS * last + COMPUTING)

    def _hold_results(self, first: Numbers) -> None:
        """Holds what ops made in memory of its own, from these moments until it is read last."""
        wires = self.readings
        is_gradient = np.zeros(len(wires.values), np.bool_)
        is_gradient[np.array([wires.number[value.id] for value in self.step.gradients.values()], np.intp)] = True
        is_own = (self.base == np.arange(len(self.base))) & ~wires.absent
        for kind, among in (("gradients", is_own & is_gradient), ("activations", is_own & ~is_gradient)):
            chosen = among[wires.inputs :].nonzero()[0]
            since, last = first[chosen], self.last[wires.inputs :][chosen]
            amounts = self.held[wires.inputs :][chosen]
            np.add.at(self.changes[kind], since, amounts)
            np.subtract.at(self.changes[kind], np.maximum(since, last) + 1, amounts)

    def in_transit(self, copy: Copy) -> float:
        """The pieces of a copy that a worker sends and receives while it is fetched."""
        axes = self.book.plan.axes
        rows = moved(copy.value, self.book.homes[copy.value.id], copy.needed, axes, (0.0,) * len(axes))
        return 2 * sum(rows) / self.book.plan.num_workers

    def source_of(self, copy: Copy) -> tuple[int, float]:
        """What a copy is fetched from: its number, and the bytes for which a worker keeps it; none for an input."""
        base = self.base_of(copy.value)
        return base, 0.0 if base < self.readings.inputs else self.book.held_bytes(copy.value)

    def _made_elsewhere(self, number: int) -> dict[int, float]:
        """By the id of a result that is then brought to where it is kept, its bytes as the op made it."""
        made = zip(self.step.ops[number].results, self.book.rows[number].made, strict=True)
        return {
            value.id: self.book.read_bytes(value, lies)
            for value, lies in made
            if lies != self.book.homes[value.id] and not is_absent(value)
        }


def _is_fetched(needed: Placements, home: Placements) -> bool:
    """A part of what the worker has is read where it lies; terms are brought together."""
    pairs = list(zip(needed, home, strict=True))
    return any(n != h and isinstance(h, (Split, Partial)) for n, h in pairs)


def footprint(book: Account) -> Footprint:
    """The peak by the books, quickly; ``program_footprint`` is what a run needs."""
    return Books(book).peak()


def sliced(quiet: Amounts, transit: Amounts, room: float) -> Amounts:
    """What is in transit at once, in as few slices as the room asks for, or what the fullest moment holds anyway."""
    left = max(room, float(quiet.max(initial=0.0))) - quiet
    return np.minimum(transit, np.maximum(transit / MOST_SLICES, left))
