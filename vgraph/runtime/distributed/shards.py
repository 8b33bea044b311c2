"""Shards: one worker's Program run op by op, and the pieces of its fetches cut out and put together.

Takes: a PartitionedProgram, local tensors. Gives: local tensors. Runs at every step.
Source: Tofu section 6 (MultiFetch).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from vgraph.ir.buffers import Overwrites, lifetimes
from vgraph.ir.departures import Departures
from vgraph.ir.exchange import Assemble, Exchange, Fetch, Piece, ReplicaMean
from vgraph.ir.program import Op, Program
from vgraph.ir.reductions import reduce_info
from vgraph.ir.sharding import Region
from vgraph.runtime.distributed.dense_ops import evaluate

Asked = tuple[Exchange | ReplicaMean, Tensor | None]
Answer = list[Tensor | None]  # of one, which is taken out of it, so that nobody else keeps the tensor
Run = Generator[Asked, Answer, list[Tensor | None]]
Start = Callable[[Op, Mapping[int, Tensor]], None]  # a fetch, tensors by value id
Coming = TypeVar("Coming")


class Collectives(Protocol[Coming]):
    """How a worker's fetches begin and end, and its means over replicas."""

    def start(self, exchange: Exchange, shard: Tensor | None) -> Coming:
        """Sends what others need of the shard; what comes is under way."""
        ...

    def finish(self, exchange: Exchange, shard: Tensor | None, coming: Coming) -> Tensor | None:
        """The worker's region, when all of it has arrived."""
        ...

    def exchange(self, exchange: Exchange, shard: Tensor | None) -> Tensor | None:
        """Both, one after the other."""
        ...

    def mean(self, shard: Tensor | None) -> Tensor | None:
        """The mean of a shard over replicas."""
        ...


def take(shard: Tensor, have: Region, part: Region) -> Tensor:
    """The entries of ``part`` out of a shard that holds ``have``; a view where each dim has one run."""
    for dim, (held, wanted) in enumerate(zip(have, part, strict=True)):
        if held == wanted:
            continue
        runs = held.positions(wanted).runs or ((0, 0),)
        if len(runs) == 1:
            shard = shard.narrow(dim, runs[0][0], runs[0][1] - runs[0][0])
        else:
            shard = torch.cat([shard.narrow(dim, low, high - low) for low, high in runs], dim)
    return shard


def put(
    result: Tensor, need: Region, part: Region, data: Tensor, join: Callable[[Tensor, Tensor], object] | None
) -> None:
    """Writes a piece to its place; ``join`` reduces it with what is there."""
    places = [(result, data)]
    for dim, (whole, entries) in enumerate(zip(need, part, strict=True)):
        if whole == entries:
            continue
        runs = whole.positions(entries).runs
        cut: list[tuple[Tensor, Tensor]] = []
        for there, here in places:
            seen = 0
            for low, high in runs:
                cut.append((there.narrow(dim, low, high - low), here.narrow(dim, seen, high - low)))
                seen += high - low
        places = cut
    for there, here in places:
        if join is None:
            there.copy_(here)
        else:
            join(there, here)


def assemble(exchange: Exchange, worker: int, data: Callable[[Piece], Tensor], like: torch.device) -> Tensor | None:
    """A worker's region out of its pieces, term by term in the order of the terms."""
    need, pieces = exchange.need[worker], exchange.pieces[worker]
    if len(pieces) == 1 and pieces[0].region == need:
        return data(pieces[0])
    result = empty_region(exchange, worker, like)
    if result is None:
        return None
    if not pieces and exchange.fill:
        return result.zero_()
    put_pieces(result, exchange, worker, data)
    return result


def empty_region(exchange: Exchange, worker: int, like: torch.device) -> Tensor | None:
    """Memory for a worker's region, if it needs one."""
    need = exchange.need[worker]
    if need is None:
        return None
    return torch.empty(tuple(len(entries) for entries in need), dtype=exchange.dtype, device=like)


def put_pieces(result: Tensor, exchange: Exchange, worker: int, data: Callable[[Piece], Tensor]) -> None:
    """Writes a worker's pieces to their places in its region, terms in their order."""
    need = exchange.need[worker]
    assert need is not None
    _join(result, need, ((piece, data(piece)) for piece in exchange.pieces[worker]), exchange.reducer)


def _join(result: Tensor, need: Region, pieces: Iterable[tuple[Piece, Tensor]], reducer: str | None) -> Tensor:
    """Pieces come in the order of their terms: the first is written, the others are reduced with it."""
    join = reduce_info(reducer).join if reducer else None
    for piece, data in pieces:
        put(result, need, piece.region, data, join if piece.term else None)
    return result


def sent_pieces(exchange: Exchange, worker: int) -> list[list[Piece]]:
    """The pieces that a worker sends to each other one, as they lie in the buffer that goes."""
    return [exchange.sent(worker, to) if to != worker else [] for to in range(len(exchange.pieces))]


def num_entries(pieces: Iterable[Sequence[Piece]]) -> list[int]:
    """How many numbers travel to, or from, each worker."""
    return [sum(piece.num_entries for piece in of_one) for of_one in pieces]


def cut(exchange: Exchange, worker: int, shard: Tensor | None) -> Iterator[Tensor]:
    """What a worker sends, piece by piece: one that is a copy need not stay while the next one is cut."""
    have = exchange.have[worker]
    for piece in (piece for pieces in sent_pieces(exchange, worker) for piece in pieces):
        assert shard is not None and have is not None
        yield take(shard, have, piece.region)


def expected(exchange: Exchange, worker: int) -> list[list[Piece]]:
    """The pieces that a worker receives from each other one, as they lie in the buffer that comes."""
    others = range(len(exchange.pieces))
    return [[p for p in exchange.pieces[worker] if p.source == s and s != worker] for s in others]


def unpack(exchange: Exchange, worker: int, shard: Tensor | None, come: Tensor | None) -> Callable[[Piece], Tensor]:
    """Finds a piece in the buffer that came, or in the worker's own shard."""
    have, views, start = exchange.have[worker], dict[int, Tensor](), 0
    if come is None and not exchange.num_bytes:  # of pieces without entries
        come = torch.empty((0,), dtype=exchange.dtype, device=None if shard is None else shard.device)
    for piece in (p for pieces in expected(exchange, worker) for p in pieces):
        assert come is not None
        shape = tuple(len(entries) for entries in piece.region)
        views[id(piece)] = come[start : start + piece.num_entries].reshape(shape)
        start += piece.num_entries

    def data(piece: Piece) -> Tensor:
        if piece.source != worker:
            return views[id(piece)]
        assert shard is not None and have is not None
        return take(shard, have, piece.region)

    return data


def run_steps(worker: Run, begun: dict[Exchange, Coming], collectives: Collectives[Coming]) -> list[Tensor | None]:
    """Answers all that a worker's run asks for; ``begun``: what is under way already."""
    try:
        asked, shard = next(worker)
        while True:
            answer = [_answer(asked, shard, begun, collectives)]
            del shard  # nothing here keeps what the worker lets go
            asked, shard = worker.send(answer)
    except StopIteration as end_of_step:
        return end_of_step.value


def _answer(
    asked: Exchange | ReplicaMean, shard: Tensor | None, begun: dict[Exchange, Coming], collectives: Collectives[Coming]
) -> Tensor | None:
    if isinstance(asked, ReplicaMean):
        return collectives.mean(shard)
    if asked in begun:
        return collectives.finish(asked, shard, begun.pop(asked))
    return collectives.exchange(asked, shard)


def run_with(
    collectives: Collectives[Coming],
    program: Program,
    inputs: Sequence[Tensor],
    device: torch.device,
    *,
    overwrites: Overwrites = (),
    departures: Departures | None = None,
) -> list[Tensor | None]:
    """One step of a worker whose fetches begin when ``departures`` say so, or where they are read."""
    begun: dict[Exchange, Coming] = {}  # and not read yet

    def start(op: Op, tensors: Mapping[int, Tensor]) -> None:
        assert isinstance(op.target, Fetch)
        shard = next((tensors.get(value.id) for value in op.operands()), None)
        begun[op.target.exchange] = collectives.start(op.target.exchange, shard)

    return run_steps(run_worker(program, inputs, device, overwrites, departures, start), begun, collectives)


def run_worker(
    program: Program,
    inputs: Sequence[Tensor],
    device: torch.device | None = None,
    overwrites: Overwrites = (),
    departures: Departures | None = None,
    start: Start | None = None,
) -> Run:
    """Runs a worker's Program; yields (exchange, its shard) at every fetch and is sent the assembled region in a list.

    ``overwrites``: outputs that are written into the memory of an input as soon as nothing reads that.
    Where there are replicas it also yields (mean, its shard), and is sent the mean over them. ``start``
    begins fetches when ``departures`` say so, and each is yielded when it has to end.
    """
    env: dict[int, Tensor] = {i.value.id: tensor for i, tensor in zip(program.inputs, inputs, strict=True)}
    del inputs
    dead = last_uses(program)
    overwritten = lifetimes(program, overwrites).overwritten if overwrites else {}
    places = {before: env[before] for pairs in overwritten.values() for before, _ in pairs}
    ends, due = (departures.ends, departures.before) if departures else ({}, {})
    passed: dict[int, Tensor | None] = {}  # shards of fetches that have not ended
    _begin(program, -1, env, departures, start)
    for position, op in enumerate(program.ops):
        if isinstance(op.target, (Fetch, ReplicaMean)):
            shard = next((env[v.id] for v in op.operands()), None)
            if ends.get(position, position) > position:
                passed[position] = shard
            else:
                yield from _bring(op, shard, env)
            del shard
        elif isinstance(op.target, Assemble):
            parts = [env[v.id] for v in op.operands()]
            result = parts[0].new_empty(tuple(len(entries) for entries in op.target.need))
            pairs = zip(op.target.pieces, parts, strict=True)
            env[op.results[0].id] = _join(result, op.target.need, pairs, op.target.reducer)
            del parts, pairs
        else:
            evaluate(op, env, device)
        for before, after in overwritten.get(position, ()):
            env[after] = places[before].copy_(env[after])
        for number in dead.get(position, ()):
            env.pop(number, None)
        for fetch in due.get(position + 1, ()):
            yield from _bring(program.ops[fetch], passed.pop(fetch), env)
        _begin(program, position, env, departures, start)
    return [None if value is None else env[value.id] for value in program.outputs]


def _begin(
    program: Program, position: int, env: Mapping[int, Tensor], departures: Departures | None, start: Start | None
) -> None:
    """Begins the fetches whose time has come when the op at this position has run."""
    if departures is not None and start is not None:
        for fetch in departures.after.get(position, ()):
            start(program.ops[fetch], env)


def _bring(op: Op, shard: Tensor | None, env: dict[int, Tensor]) -> Generator[Asked, Answer]:
    """Files what a fetch, or a mean over replicas, gives."""
    assert isinstance(op.target, (Fetch, ReplicaMean))
    asked = op.target.exchange if isinstance(op.target, Fetch) else op.target
    answer = yield asked, shard
    fetched = answer.pop()
    if op.results:
        assert fetched is not None
        env[op.results[0].id] = fetched


def last_uses(program: Program) -> dict[int, list[int]]:
    """Position of an op to the values that nothing reads after it; inputs stay with their owner."""
    kept = {v.id for v in program.outputs if v is not None}
    last: dict[int, int] = {}
    for position, op in enumerate(program.ops):
        last.update((v.id, position) for v in (*op.operands(), *op.results))
    found: dict[int, list[int]] = {}
    for number, position in last.items():
        if number not in kept:
            found.setdefault(position, []).append(number)
    return found
