"""Departures: how long each fetch of a worker's Program is under way, so that bytes travel while the worker computes.

Takes: a worker's Program, which outputs overwrite which inputs. Gives: a schedule, bytes op by op. Runs once per plan.
Source: Tofu section 6 begins a fetch no earlier than its reader, to hold no buffer longer than need be; here it begins
as soon as its source is made and ends at its first reader, but only where the worker's peak of memory stays what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vgraph.ir.buffers import Overwrites, held_bytes, lifetimes, shared_operand, transit_bytes
from vgraph.ir.exchange import Fetch, ReplicaMean
from vgraph.ir.program import Op, Program, Value
from vgraph.ir.tdl.table import is_view


@dataclass(frozen=True, eq=False)
class Departures:
    """When each fetch of a worker's Program that moves anything begins and ends, by its position.

    ``begins``: the position of the op after which it begins; -1: before the first. ``ends``: that of the op before
    which it ends. ``held``: bytes that the worker holds while each op runs, with what is under way.
    """

    begins: Mapping[int, int]
    ends: Mapping[int, int]
    held: Sequence[int]

    @cached_property
    def after(self) -> dict[int, list[int]]:
        """Position of an op to the fetches that then begin, in the order of the Program."""
        return _inverse(self.begins)

    @cached_property
    def before(self) -> dict[int, list[int]]:
        """Position of an op to the fetches before it that must have ended by then."""
        return _inverse({fetch: end for fetch, end in self.ends.items() if end > fetch})


def _inverse(positions: Mapping[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for fetch, position in positions.items():
        found.setdefault(position, []).append(fetch)
    return found


def early_departures(program: Program, overwrites: Overwrites) -> Departures:
    """Every fetch begins as early as its source is made, and ends as late as it is read, as far as memory allows.

    Fetches begin in the order of the Program, which is one for all workers, so that collectives meet. None begins
    before a mean over replicas that it follows: collectives of two groups keep their order, too. What travels in
    slices begins and ends where it is read.
    """
    held = np.array(held_bytes(program, lifetimes(program, overwrites)), dtype=np.int64)
    peak, earliest, uses = held.max(initial=0), -1, _Uses(program, overwrites)
    begins, ends = dict[int, int](), dict[int, int]()
    for position, op in enumerate(program.ops):
        if isinstance(op.target, ReplicaMean):
            earliest = position
        if not isinstance(op.target, Fetch) or not op.target.exchange.num_bytes:
            continue
        exchange, me = op.target.exchange, op.target.worker
        if exchange.slices > 1:
            earliest = position
            uses.made.update((value.id, position) for value in op.results)
            continue
        sent = exchange.sent_bytes(me)
        if sent:
            earliest = max(earliest, *(uses.made.get(value.id, -1) for value in op.operands()))
        amount = sent + exchange.received_bytes(me)
        full = np.flatnonzero(held[earliest + 1 : position] + amount > peak)
        if len(full):
            earliest += 1 + int(full[-1])
        held[earliest + 1 : position] += amount
        begins[position], ends[position] = earliest, uses.latest_end(op, position)
        amount = transit_bytes(op) + sum(map(uses.kept_bytes, op.operands()))
        full = np.flatnonzero(held[position + 1 : ends[position]] + amount > peak)
        if len(full):
            ends[position] = position + 1 + int(full[0])
        held[position + 1 : ends[position]] += amount
        uses.made.update((value.id, max(position, ends[position] - 1)) for value in op.results)
    return Departures(begins, ends, held.tolist())


class _Uses:
    """Where values of a Program are made and first read; what lies in the memory of inputs."""

    def __init__(self, program: Program, overwrites: Overwrites) -> None:
        self.end = len(program.ops)
        self.inputs = {given.value.id for given in program.inputs}
        self.made: dict[int, int] = {}
        self.read = {value.id: self.end for value in program.outputs if value is not None}
        self.base: dict[int, int] = {}
        for position, op in enumerate(program.ops):
            for value in op.operands():
                self.read[value.id] = min(position, self.read.get(value.id, position))
            shared = shared_operand(op)
            for value in op.results:
                self.made[value.id] = position
                if shared is not None:
                    self.base[value.id] = self.base.get(shared.id, shared.id)
        overwritten = lifetimes(program, overwrites).overwritten
        self.overwritten = {before for pairs in overwritten.values() for before, _ in pairs}
        for position, pairs in overwritten.items():
            for _, after in pairs:
                self.read[after] = min(position, self.read.get(after, position))

    def latest_end(self, op: Op, position: int) -> int:
        """The first reader; but the fetch ends at once where it looks at, or reads, memory that is written again."""
        bases = {self.base.get(value.id, value.id) for value in op.operands()}
        if shared_operand(op) is not None or bases & self.overwritten:
            return position
        return max(position, *(self.read.get(value.id, position) for value in op.results)) if op.results else self.end

    def kept_bytes(self, value: Value) -> int:
        """What a fetch keeps that has passed: its own shard, which may be read by nobody else; inputs stay anyway."""
        return 0 if self.base.get(value.id, value.id) in self.inputs else value.row_bytes


def overlapped_bytes(program: Program, departures: Departures) -> int:
    """Bytes that the worker receives while it computes: an operator runs between their departure and arrival."""
    total = 0
    for position, begin in departures.begins.items():
        target, end = program.ops[position].target, departures.ends[position]
        if isinstance(target, Fetch) and any(map(_computes, program.ops[begin + 1 : end])):
            total += target.exchange.received_bytes(target.worker)
    return total


def _computes(op: Op) -> bool:
    return not (isinstance(op.target, (Fetch, ReplicaMean)) or is_view(op.target))
