"""Slices: fetches for which a worker would hold more than it may travel a part after the other.

Takes: a PartitionedProgram, bytes that a worker may hold. Gives: the same with some exchanges sliced. Runs once a plan.
Source: none. Tofu's MultiFetch (section 6) holds all pieces of an operand at once, packed and received.
"""

from __future__ import annotations

from dataclasses import replace

from vgraph.ir.buffers import held_bytes, lifetimes, transit_bytes
from vgraph.ir.exchange import MOST_SLICES, Exchange, Fetch
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.program import Op, Program

_COUNTS = tuple(2**i for i in range(1, MOST_SLICES.bit_length()))


def in_slices(parts: PartitionedProgram, room: float) -> PartitionedProgram:
    """As few slices as keep every worker within its room, or within what the fullest holds while nothing travels."""
    held = [held_bytes(program, lifetimes(program, parts.overwrites)) for program in parts.programs]
    transit = [[transit_bytes(op) for op in program.ops] for program in parts.programs]
    quiet = [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(held, transit, strict=True)]
    enough = max(room, *(max(amounts, default=0) for amounts in quiet))
    counts: dict[int, int] = {}
    for program, alone, amounts in zip(parts.programs, quiet, held, strict=True):
        for op, before, amount in zip(program.ops, alone, amounts, strict=True):
            if isinstance(op.target, Fetch) and amount > enough and op.target.exchange.is_divisible:
                exchange = op.target.exchange
                fewest = _fewest(exchange, op.target.worker, enough - before)
                counts[exchange.number] = max(counts.get(exchange.number, 1), fewest)
    return _with_slices(parts, counts) if counts else parts


def _fewest(exchange: Exchange, worker: int, room: float) -> int:
    """The fewest slices that the room holds; if none does, the most."""
    sliced = (replace(exchange, slices=count) for count in _COUNTS)
    return next((each.slices for each in sliced if each.transit_bytes(worker) <= room), MOST_SLICES)


def _with_slices(parts: PartitionedProgram, counts: dict[int, int]) -> PartitionedProgram:
    sliced = {e.number: replace(e, slices=counts[e.number]) for e in parts.exchanges if e.number in counts}

    def of(op: Op) -> Op:
        if not isinstance(op.target, Fetch) or op.target.exchange.number not in sliced:
            return op
        return replace(op, target=replace(op.target, exchange=sliced[op.target.exchange.number]))

    def programs_of(program: Program) -> Program:
        return replace(program, ops=tuple(map(of, program.ops)))

    exchanges = tuple(sliced.get(exchange.number, exchange) for exchange in parts.exchanges)
    return replace(parts, programs=tuple(map(programs_of, parts.programs)), exchanges=exchanges)
