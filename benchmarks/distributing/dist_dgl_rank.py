"""What DistDGL runs in processes of its own: partitioning, a server, or a trainer that samples; needs DGL 1.1.

Started by ``dist_dgl.py`` with the Python that has DGL: ``dist_dgl_rank.py partition|rank FOLDER BATCH FANOUT...``. A
process called ``rank`` is what the variable DGL_ROLE says; a trainer prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter

import dgl
import numpy as np
import torch

MARK = "RESULT "


def partition(folder: Path) -> None:
    """Two parts by DGL's METIS."""
    src, dst, feat = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("src", "dst", "feat"))
    g = dgl.graph((src, dst), num_nodes=len(feat))
    g.ndata["feat"] = feat
    dgl.distributed.partition_graph(g, "g", 2, str(folder / "dgl"), part_method="metis")


def serve_or_train(folder: Path, batch: int, fanouts: list[int]) -> None:
    """Two epochs over a fifth of the nodes, of which the second is timed; a server stays in ``initialize``."""
    dgl.distributed.initialize(str(folder / "machines.txt"))
    g = dgl.distributed.DistGraph("g")
    book = g.get_partition_book()
    ids = book.partid2nids(book.partid)[::5]
    sampler = dgl.dataloading.NeighborSampler(fanouts)
    loader = dgl.dataloading.DistNodeDataLoader(g, ids, sampler, batch_size=batch // 2, shuffle=True)
    seconds = 0.0
    for _ in range(2):
        g.barrier()
        start = perf_counter()
        for input_nodes, _, blocks in loader:
            blocks[0].srcdata["feat"] = g.ndata["feat"][input_nodes]
        seconds = perf_counter() - start
    print(MARK + json.dumps({"seeds": len(ids), "seconds": seconds}), flush=True)


def main(what: str, folder: str, batch: str, *fanouts: str) -> None:
    torch.set_num_threads(1)
    if what == "partition":
        partition(Path(folder))
    else:
        serve_or_train(Path(folder), int(batch), list(map(int, fanouts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
