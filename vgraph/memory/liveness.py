"""Liveness: from which phase to which a stored value must be kept.

Takes: phases, what each stores, outputs. Gives: a Lifetime by value id. Runs once per function.
Source: Cavs section 3.3 (dynamic tensors), lifetimes as in any register allocator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from vgraph.ir.memory import Lifetime
from vgraph.ir.program import Op, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.tdl.table import may_share


def lifetimes(
    phases: Sequence[Phase], stores: Sequence[Collection[int]], outputs: Iterable[Value | None]
) -> dict[int, Lifetime]:
    """First phase that writes and last that reads or writes every value that a phase stores, by id.

    ``stores``: ids, phase by phase. Outputs and saved values are read after the last phase.
    """
    last = _last_reads(phases, outputs)
    first: dict[int, int] = {}
    for index, ids in enumerate(stores):
        for value_id in ids:  # leaves and inner vertices write rows of the same value, whether or not they are read
            first.setdefault(value_id, index)
            last[value_id] = max(last.get(value_id, index), index)
    return {i: Lifetime(index, last[i]) for i, index in first.items()}


def in_turns(phases: Sequence[Phase]) -> Phase:
    """Loops that take turns, as far as lifetimes go."""
    return replace(phases[0], ops=tuple(op for phase in phases for op in phase.ops))


def _last_reads(phases: Sequence[Phase], outputs: Iterable[Value | None]) -> dict[int, int]:
    """Backwards, so that every reader of a result is known before the op that makes it."""
    last = {value.id: len(phases) for value in outputs if value is not None}
    for index in reversed(range(len(phases))):
        for op in reversed(phases[index].ops):
            until = _read_until(op, index, last, copies=phases[index].is_loop)
            for value in op.operands():
                last[value.id] = max(last.get(value.id, 0), until)
    return last


def _read_until(op: Op, index: int, last: dict[int, int], *, copies: bool) -> int:
    """A result that shares its operand's memory reads it for as long as it is read itself.

    What a loop keeps it copies into the arena, so there nothing outside of it shares.
    """
    if copies or not may_share(op):
        return index
    return max((last.get(result.id, index) for result in op.results), default=index)
