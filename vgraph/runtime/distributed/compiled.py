"""Compiled steps: a worker's Program inside ``torch.compile``, with operators for what goes to other workers.

Takes: one worker's Program, its shards. Gives: its outputs. Runs while a step is traced, its operators at every step.

Programs of two workers differ (regions, halos), so that a compiler may order operators that do not depend on one
another differently, or leave some for the backward. Collectives must meet on all workers: each takes the turn that the
one before gives, and the first output takes the last turn.

Where elements lie a compiler asks fake tensors, and some operators lay their results out otherwise than their fakes do
(``softplus_backward`` of operands that lie differently). So whatever is read as if its elements followed one another is
copied first, which is right wherever they lie; compilers that lay tensors out themselves leave such copies out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from vgraph.errors import WorkerError
from vgraph.ir.exchange import Exchange, Fetch
from vgraph.ir.program import Op, Program, Value, op_name
from vgraph.ir.tdl.table import READ_AS_DENSE
from vgraph.runtime.distributed.groups import lost_workers
from vgraph.runtime.distributed.process_group import Arriving, WorkerGroup
from vgraph.runtime.distributed.shards import assemble, cut, expected, num_entries, run_with, unpack
from vgraph.runtime.distributed.tiles import concatenate


class CompiledWorker:
    """One worker's Program that is traced into a graph, in which ``number`` stands for it while somebody holds it.

    ``others``: exchanges of the step beside those of the Program. ``refuse_changes``: raises where the step is out of
    date; called first in every step.
    """

    def __init__(
        self,
        program: Program,
        group: WorkerGroup,
        constants: Mapping[str, Tensor],
        others: Iterable[Exchange],
        refuse_changes: Callable[[], None],
    ) -> None:
        self.program, self.group, self.constants = _with_dense_operands(program), group, constants
        self.refuse_changes = refuse_changes
        fetched = (op.target.exchange for op in self.program.ops if isinstance(op.target, Fetch))
        self.exchanges = list(dict.fromkeys((*fetched, *others)))
        self.coming: dict[int, Arriving] = {}  # by place among the exchanges
        self.number = next(_numbers)
        _workers[self.number] = self


def _with_dense_operands(program: Program) -> Program:
    """The Program with copies of what is reshaped or read as dense."""
    values = [*(entry.value for entry in program.inputs), *(made for op in program.ops for made in op.results)]
    numbers = itertools.count(1 + max((value.id for value in values), default=0))
    ops = list[Op]()
    for op in program.ops:
        if op_name(op.target) in READ_AS_DENSE or op_name(op.target) == "reshape":
            copies = {value: replace(value, id=next(numbers)) for value in op.operands()}
            ops += [Op(_clone, (value,), _DENSE, (copy,), op.line) for value, copy in copies.items()]
            op = op.mapped(lambda leaf, copies=copies: copies.get(leaf, leaf) if isinstance(leaf, Value) else leaf)
        ops.append(op)
    return replace(program, ops=tuple(ops))


_clone = torch.ops.aten.clone.default
_DENSE = {"memory_format": torch.contiguous_format}


_numbers = itertools.count()
_workers: WeakValueDictionary[int, CompiledWorker] = WeakValueDictionary()


def worker_of(number: int) -> CompiledWorker:
    """The worker of a compiled graph.

    Raises:
        WorkerError: it is gone, or of another process.
    """
    found = _workers.get(number)
    if found is None:
        raise WorkerError(
            "a compiled graph calls a step that this process does not hold",
            cure="compile the model again in this process: torch.compiler.reset()",
        )
    return found


class Turns:
    """Collectives of one traced step, in turn; packing and unpacking are part of the graph. ``first``: any tensor."""

    def __init__(self, worker: CompiledWorker, first: Tensor) -> None:
        self._worker, self._last = worker, begin(worker.number, first.detach().reshape(-1)[:0])
        self._places = {exchange: place for place, exchange in enumerate(worker.exchanges)}

    def run(self, inputs: Mapping[str, Tensor]) -> list[Tensor | None]:
        """What the Program gives, of inputs by name; constants are found here."""
        worker, given = self._worker, list[Tensor]()
        for entry in worker.program.inputs:
            if entry.name in worker.constants:
                given.append(held(worker.number, entry.name))
            else:
                given.append(inputs[entry.name])
        group, program = worker.group, worker.program
        return run_with(self, program, given, group.device, departures=group.departures_of(program))

    def end(self, found: Tensor) -> Tensor:
        """What is found, once all turns are over."""
        return after(found, self._last)

    def start(self, exchange: Exchange, shard: Tensor | None) -> Tensor | None:
        """Sends what is packed, which is given back."""
        if not exchange.num_bytes:
            return None
        worker = self._worker
        flat = [_clone(part, **_DENSE).view(-1) for part in cut(exchange, worker.group.rank, shard)]
        packed = torch.cat(flat) if flat else torch.empty(0, dtype=exchange.dtype, device=worker.group.device)
        self._last = send(worker.number, self._places[exchange], packed, self._last)
        return packed

    def finish(self, exchange: Exchange, shard: Tensor | None, coming: Tensor | None) -> Tensor | None:
        """The region, put together of what came."""
        worker, come = self._worker, None
        if coming is not None:
            come, self._last = receive(worker.number, self._places[exchange], coming, self._last)
        rank = worker.group.rank
        data, need = unpack(exchange, rank, shard, come), exchange.need[rank]
        if need is not None and exchange.pieces[rank]:
            tiled = concatenate(need, [(piece, data(piece)) for piece in exchange.pieces[rank]], exchange.reducer)
            if tiled is not None:
                return tiled
        return assemble(exchange, rank, data, worker.group.device)

    def exchange(self, exchange: Exchange, shard: Tensor | None) -> Tensor | None:
        """Both, one after the other; all at once, since a compiler does not keep to what a worker may hold."""
        return self.finish(exchange, shard, self.start(exchange, shard))

    def mean(self, shard: Tensor | None) -> Tensor | None:
        """The mean over replicas."""
        if shard is None:
            return None
        found, self._last = replica_mean(self._worker.number, shard, self._last)
        return found


# ---------------------------------------------------------------- the operators
@torch.library.custom_op("vgraph::begin", mutates_args=(), schema="(int worker, Tensor like) -> Tensor")
def begin(worker: int, like: Tensor) -> Tensor:
    """The first turn, of a step that is not out of date."""
    worker_of(worker).refuse_changes()
    return like.new_empty(0)


@begin.register_fake
def _(worker: int, like: Tensor) -> Tensor:
    return like.new_empty(0)


@torch.library.custom_op(
    "vgraph::send", mutates_args=(), schema="(int worker, int exchange, Tensor packed, Tensor turn) -> Tensor"
)
def send(worker: int, exchange: int, packed: Tensor, turn: Tensor) -> Tensor:
    """Begins an exchange; what is packed stays until it is received."""
    found = worker_of(worker)
    with lost_workers():
        found.coming[exchange] = found.group.send(found.exchanges[exchange], packed)
    return turn.new_empty(0)


@send.register_fake
def _(worker: int, exchange: int, packed: Tensor, turn: Tensor) -> Tensor:
    return turn.new_empty(0)


@torch.library.custom_op(
    "vgraph::receive",
    mutates_args=(),
    schema="(int worker, int exchange, Tensor packed, Tensor turn) -> (Tensor, Tensor)",
)
def receive(worker: int, exchange: int, packed: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Ends an exchange; ``packed`` is read until then."""
    with lost_workers():
        return worker_of(worker).coming.pop(exchange).wait(), turn.new_empty(0)


@receive.register_fake
def _(worker: int, exchange: int, packed: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    found = worker_of(worker)
    counts = num_entries(expected(found.exchanges[exchange], found.group.rank))
    return packed.new_empty(sum(counts)), turn.new_empty(0)


@torch.library.custom_op(
    "vgraph::replica_mean", mutates_args=(), schema="(int worker, Tensor shard, Tensor turn) -> (Tensor, Tensor)"
)
def replica_mean(worker: int, shard: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of a shard over replicas of the plan."""
    found = worker_of(worker).group.mean(shard)
    assert found is not None
    return found, turn.new_empty(0)


@replica_mean.register_fake
def _(worker: int, shard: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    return shard.new_empty(shard.shape), turn.new_empty(0)


@torch.library.custom_op("vgraph::held", mutates_args=(), schema="(int worker, str name) -> Tensor")
def held(worker: int, name: str) -> Tensor:
    """A copy of this worker's part of a constant of the step: a compiler may write over what an operator gives."""
    return worker_of(worker).constants[name].clone()


@held.register_fake
def _(worker: int, name: str) -> Tensor:
    like = worker_of(worker).constants[name]
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


@torch.library.custom_op("vgraph::after", mutates_args=(), schema="(Tensor value, Tensor turn) -> Tensor")
def after(value: Tensor, turn: Tensor) -> Tensor:
    """The value, once the turn has come."""
    return value.clone()


@after.register_fake
def _(value: Tensor, turn: Tensor) -> Tensor:
    return torch.empty_like(value)
