"""Buffers: what one worker's Program holds when, the buffers of its fetches included.

Takes: a worker's Program, which outputs overwrite which inputs. Gives: lifetimes, bytes op by op. Runs once per plan.
Source: Tofu section 6 (buffers die as early as before), 7.1 (memory a worker).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from vgraph.ir.exchange import Assemble, Exchange, Fetch
from vgraph.ir.program import Op, Program, Value, op_name
from vgraph.ir.tdl.table import is_view

Overwrites = Sequence[tuple[int, int]]  # (input, output) of the Program: the output takes the input's memory
_VIEWS = frozenset(
    "reshape _unsafe_view flatten unflatten view_as_real view_as_complex view_dtype".split()
)  # of contiguous operands


def shared_operand(op: Op) -> Value | None:
    """The operand in whose memory an op's results lie, if they need none of their own."""
    if isinstance(op.target, Fetch):
        return next(op.operands()) if _is_own(op.target.exchange, op.target.worker) else None
    if isinstance(op.target, Assemble) or not (is_view(op.target) or op_name(op.target) in _VIEWS):
        return None
    return next(op.operands(), None)


def _is_own(exchange: Exchange, worker: int) -> bool:
    """A worker that has all it needs looks at it where it lies."""
    pieces, need, have = exchange.pieces[worker], exchange.need[worker], exchange.have[worker]
    if len(pieces) != 1 or pieces[0].source != worker or pieces[0].region != need or have is None or need is None:
        return False
    return all(held.positions(wanted).is_interval for held, wanted in zip(have, need, strict=True))


def transit_bytes(op: Op) -> int:
    """What a fetch holds beside its result."""
    return op.target.exchange.transit_bytes(op.target.worker) if isinstance(op.target, Fetch) else 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that an op makes, and the positions of that op and of the last one that reads it or a view of it."""

    value: Value
    first: int
    last: int
    is_fetched: bool


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """All buffers of a Program beside its inputs, whose memory is the caller's as long as the step.

    ``overwritten``: position to the (input, result) pairs where the result is written into the input's
    memory after the op there has run, for nothing reads the input any more.
    """

    buffers: list[Buffer]
    overwritten: dict[int, list[tuple[int, int]]]


def lifetimes(program: Program, overwrites: Overwrites = ()) -> Lifetimes:
    """When each buffer is made and read last; outputs that overwrite no input live to the end."""
    root, last, made, end = dict[int, int](), dict[int, int](), list[tuple[Value, int, bool]](), len(program.ops)
    first: dict[int, int] = {}
    for position, op in enumerate(program.ops):
        base = shared_operand(op)
        for value in op.results:
            first[value.id] = position
            if base is not None:
                root[value.id] = root.get(base.id, base.id)
            else:
                made.append((value, position, isinstance(op.target, Fetch)))
        for value in (*op.operands(), *op.results):
            last[root.get(value.id, value.id)] = position
    bases = [None if value is None else root.get(value.id, value.id) for value in program.outputs]
    replacing = {output for _, output in overwrites}
    last.update((base, end) for o, base in enumerate(bases) if base is not None and o not in replacing)
    overwritten: dict[int, list[tuple[int, int]]] = {}
    for source, output in overwrites:
        before, after, base = program.inputs[source].value, program.outputs[output], bases[output]
        if after is None or base is None:
            continue
        position = max(first.get(after.id, end), last.get(before.id, -1))
        if position == end or base not in first or last[base] == end or before.id in bases:
            last[base] = end
            continue
        overwritten.setdefault(position, []).append((before.id, after.id))
        last[base] = position if base == after.id else max(last[base], position)
    return Lifetimes([Buffer(v, at, last[v.id], is_fetched) for v, at, is_fetched in made], overwritten)


def held_bytes(program: Program, lives: Lifetimes) -> list[int]:
    """Bytes that the worker holds while each op runs: inputs, buffers, and what is in transit."""
    change = [0] * (len(program.ops) + 2)
    change[0] = sum(given.value.row_bytes for given in program.inputs)
    for buffer in lives.buffers:
        size = buffer.value.row_bytes
        change[buffer.first] += size
        change[buffer.last + 1] -= size
    held = itertools.accumulate(change[: len(program.ops)])
    return [amount + transit_bytes(op) for amount, op in zip(held, program.ops, strict=True)]
