"""What the exchanges of sampled minibatches send, beside the cost model's formula; started by torchrun: ``FOLDER``.

The formula is given what minibatches show: which nodes a rank asked others for, and which edges came.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

import vgraph.distributed as vd
from vgraph.distributed.plan import header_bytes, sampled_bytes
from vgraph.distributed.sampled.layout import layout_of
from vgraph.runtime.distributed.ranks import current_ranks
from vgraph.sampling import NeighborSampler

FANOUTS, BULK, ROW_BYTES, LABEL_BYTES = [4, 3], 2, 6 * 8, 8


def counts_of(g: vd.DistGraph, made: list[Any]) -> tuple[list[int], list[int], int, int]:
    """By hop the nodes asked of others and the edges that these drew; inputs and outputs of others."""
    first, last = layout_of(g).served.range_of("_N")

    def is_far(ids: torch.Tensor) -> torch.Tensor:
        return (ids < first) | (ids >= last)

    remote, drawn, inputs, outputs = [0] * len(FANOUTS), [0] * len(FANOUTS), 0, 0
    for given, seeds, blocks in made:
        for hop, block in enumerate(reversed(blocks)):
            far = is_far(block.dstdata["_ID"])
            remote[hop] += int(far.sum())
            drawn[hop] += int(far[block.edges()[1]].sum())
        inputs, outputs = inputs + int(is_far(given).sum()), outputs + int(is_far(seeds).sum())
    return remote, drawn, inputs, outputs


def main(folder: str) -> None:
    vd.init(timeout=60)
    g, ranks = vd.DistGraph(Path(folder) / "homogeneous"), current_ranks()
    machines = len(layout_of(g).machines.ranks)
    for cache_bytes in (0, 1000):
        sampler = NeighborSampler(FANOUTS, prefetch_node_feats=["feat"], prefetch_labels=["label"])
        options: Any = {"batch_size": 13, "shuffle": True, "bulk": BULK, "cache_bytes": cache_bytes}
        loader = vd.DistDataLoader(g, g.ndata["train"], sampler, **options)
        before = loader.statistics["sent_bytes"]
        made = list(loader)
        remote, drawn, inputs, outputs = counts_of(g, made)
        wanted = sampled_bytes(remote, drawn, inputs, ROW_BYTES, edge_ids=True)
        wanted += sampled_bytes([], [], outputs, LABEL_BYTES)
        saved = loader.statistics["hits"] * (8 + ROW_BYTES)  # labels are not kept: nobody asks for them twice
        sizes = [min(BULK, len(loader) - step) for step in range(0, len(loader), BULK)]
        headers = sum(len(FANOUTS) * header_bytes(machines, n) + header_bytes(machines, 2 * n) for n in sizes)
        sent = loader.statistics["sent_bytes"] - before
        total, model = (sum(ranks.gather(n, "test")) for n in (sent, wanted - saved + headers))
        assert loader.statistics["hits"] + loader.statistics["misses"] == inputs + outputs
        if vd.rank() == 0:
            print(f"cache {cache_bytes}: sent {total}, model {model}, hits {loader.statistics['hits']}", flush=True)
    vd.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
