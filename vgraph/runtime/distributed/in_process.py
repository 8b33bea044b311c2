"""In-process executor: all workers' Programs in one process, in turn between fetches; the reference.

Takes: a PartitionedProgram, whole tensors. Gives: whole tensors. Runs at every step.
Source: Tofu section 6; what every other executor must agree with.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from vgraph.ir.exchange import Exchange, Piece, ReplicaMean
from vgraph.ir.index_set import IndexSet
from vgraph.ir.partitioned import Layout, PartitionedProgram
from vgraph.ir.sharding import Region
from vgraph.runtime.distributed.shards import assemble, put, run_worker, take


def scatter(tensor: Tensor, layout: Layout) -> list[Tensor]:
    """The shard of every worker; nothing is an empty tensor."""
    whole = whole_like(tensor)
    return [
        tensor.new_empty((0,)) if region is None else take(tensor, whole, region).contiguous()
        for region in layout.regions
    ]


def whole_like(tensor: Tensor) -> Region:
    """All of a tensor; its extents are numbers also where Dynamo would let them vary from graph to graph."""
    return tuple(IndexSet.whole(operator.index(extent)) for extent in tensor.shape)


def collect(shards: Sequence[Tensor | None], layout: Layout, shape: Sequence[int]) -> Tensor:
    """The whole tensor out of its shards."""
    first = next(s for s in shards if s is not None)
    result = first.new_empty(tuple(shape))
    whole = whole_like(result)
    for shard, region in zip(shards, layout.regions, strict=True):
        if shard is not None and region is not None:
            put(result, whole, region, shard, None)
    return result


def run_all(parts: PartitionedProgram, inputs: Sequence[Sequence[Tensor]]) -> list[list[Tensor | None]]:
    """Outputs of every worker; ``inputs[worker]`` are its shards.

    Between two fetches each worker sees the same state of torch's random generator, so that all draw
    the same numbers, which are those of one process.
    """
    workers = [run_worker(program, given) for program, given in zip(parts.programs, inputs, strict=True)]
    given: list[Tensor | None] = [None] * len(workers)
    is_first = True
    while True:
        state = torch.get_rng_state()
        asked: list[tuple[Exchange | ReplicaMean, Tensor | None]] = []
        outputs: list[list[Tensor | None]] = []
        for number, worker in enumerate(workers):
            torch.set_rng_state(state)
            try:
                asked.append(next(worker) if is_first else worker.send([given[number]]))
            except StopIteration as end:
                outputs.append(end.value)
            given[number] = None
        if outputs:
            assert len(outputs) == len(workers), "workers disagree about the number of fetches"
            return outputs
        is_first = False
        given = serve(asked)


def serve(asked: Sequence[tuple[Exchange | ReplicaMean, Tensor | None]]) -> list[Tensor | None]:
    exchange = asked[0][0]
    assert isinstance(exchange, Exchange), "one process has no replicas"
    assert all(other is exchange for other, _ in asked), "workers disagree about the order of fetches"
    shards = [shard for _, shard in asked]
    device = next(s.device for s in shards if s is not None)

    def piece_of(piece: Piece) -> Tensor:
        shard, have = shards[piece.source], exchange.have[piece.source]
        assert shard is not None and have is not None
        return take(shard, have, piece.region)

    return [assemble(exchange, worker, piece_of, device) for worker in range(len(asked))]
