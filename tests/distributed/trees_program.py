"""What one process of a test of batches of trees does: trains a Tree-LSTM on its share; writes losses into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import vgraph
import vgraph.distributed as vd
from vgraph.nn import ChildSumTreeLSTM


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = ChildSumTreeLSTM(5, 8), nn.Linear(8, 3)

    def forward(self, trees: vgraph.Graph) -> Tensor:
        h = self.cell(trees, x=trees.ndata["x"])["h"]
        sizes = trees.batch_num_nodes()
        return self.out(h[sizes.cumsum(0) - sizes])


def random_trees(count: int) -> list[tuple[vgraph.Graph, Tensor]]:
    """Of 1 to 40 vertices, the root first, each other one below an earlier one."""
    draw, found = torch.Generator().manual_seed(5), []
    for _ in range(count):
        size = int(torch.randint(1, 41, (), generator=draw))
        parents = [int(torch.randint(0, v, (), generator=draw)) for v in range(1, size)]
        tree = vgraph.graph((torch.arange(1, size), torch.tensor(parents, dtype=torch.int64)), num_nodes=size)
        tree.ndata["x"] = torch.randn(size, 5, generator=draw, dtype=torch.float64)
        found.append((tree, torch.randint(0, 3, (), generator=draw)))
    return found


def main() -> None:
    folder, losses = Path(sys.argv[1]), list[float]()
    vd.init(timeout=60)
    torch.manual_seed(2)
    model = Reader().double()
    trees = random_trees(26)

    def measure(batch: tuple[vgraph.Graph, Tensor]) -> None:
        F.cross_entropy(model(batch[0]), batch[1]).backward()

    loader = vd.DistGraphLoader(trees, batch_size=8, seed=1, measure=measure)
    model.zero_grad()
    parallel = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for graphs, label in loader:
            rows = F.cross_entropy(parallel(graphs), label, reduction="none")
            loss = vd.mean(rows, graphs.gdata["_WEIGHT"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    found = losses, [p.detach() for p in model.parameters()], [loader.work.a, loader.work.b, loader.work.c]
    torch.save(found, folder / f"{vd.num_ranks()}-{vd.rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
