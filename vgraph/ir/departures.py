"""Departures: after which op each fetch of a worker's Program begins, so that bytes travel while the worker computes.

Takes: a worker's Program, which outputs overwrite which inputs. Gives: a schedule, bytes op by op. Runs once per plan.
Source: Tofu section 6 begins a fetch no earlier than its reader, to hold no buffer longer than need be; here it begins
as soon as its source is made, but only where the worker's peak of memory stays what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vgraph.ir.buffers import Overwrites, held_bytes, lifetimes
from vgraph.ir.exchange import Fetch, ReplicaMean
from vgraph.ir.program import Op, Program
from vgraph.ir.tdl.table import is_view


@dataclass(frozen=True, eq=False)
class Departures:
    """When each fetch of a worker's Program that moves anything begins.

    ``begins``: position of a fetch to that of the op after which it begins; -1: before the first. ``held``: bytes that
    the worker holds while each op runs, with what is under way.
    """

    begins: Mapping[int, int]
    held: Sequence[int]

    @cached_property
    def after(self) -> dict[int, list[int]]:
        """Position of an op to the fetches that then begin, in the order of the Program."""
        found: dict[int, list[int]] = {}
        for fetch, begin in self.begins.items():
            found.setdefault(begin, []).append(fetch)
        return found


def early_departures(program: Program, overwrites: Overwrites = ()) -> Departures:
    """Every fetch as early as its source is made and memory allows.

    Fetches begin in the order of the Program, which is one for all workers, so that collectives meet. None begins
    before a mean over replicas that it follows: collectives of two groups keep their order, too.
    """
    held = np.array(held_bytes(program, lifetimes(program, overwrites)), dtype=np.int64)
    peak, earliest = held.max(initial=0), -1
    made = {value.id: position for position, op in enumerate(program.ops) for value in op.results}
    begins: dict[int, int] = {}
    for position, op in enumerate(program.ops):
        if isinstance(op.target, ReplicaMean):
            earliest = position
        if not isinstance(op.target, Fetch) or not op.target.exchange.num_bytes:
            continue
        exchange, me = op.target.exchange, op.target.worker
        sent = exchange.sent_bytes(me)
        if sent:
            earliest = max(earliest, *(made.get(value.id, -1) for value in op.operands()))
        amount = sent + exchange.received_bytes(me)
        full = np.flatnonzero(held[earliest + 1 : position] + amount > peak)
        if len(full):
            earliest += 1 + int(full[-1])
        held[earliest + 1 : position] += amount
        begins[position] = earliest
    return Departures(begins, held.tolist())


def overlapped_bytes(program: Program, departures: Departures) -> int:
    """Bytes that the worker receives while it computes: an operator runs between their departure and arrival."""
    total = 0
    for position, begin in departures.begins.items():
        target = program.ops[position].target
        if isinstance(target, Fetch) and any(map(_computes, program.ops[begin + 1 : position])):
            total += target.exchange.received_bytes(target.worker)
    return total


def _computes(op: Op) -> bool:
    return not (isinstance(op.target, (Fetch, ReplicaMean)) or is_view(op.target))
