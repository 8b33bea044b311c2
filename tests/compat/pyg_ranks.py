"""One of two ranks that train an accelerated model by DistributedDataParallel; started by torchrun."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import vgraph

GRAPHS = 4


class Net(nn.Module):
    """Two layers of different kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = pyg.GATConv(8, 8), pyg.SAGEConv(8, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


def main() -> None:
    """Each rank has half of the graphs; the gradients must be those of all graphs in one process, without vgraph."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net().double()
    graphs = [(torch.randn(20, 8).double(), torch.randint(0, 20, (2, 60))) for _ in range(GRAPHS)]
    alone = copy.deepcopy(model)
    sum(alone(*graph).square().mean() for graph in graphs).div(GRAPHS).backward()
    parallel = DistributedDataParallel(vgraph.accelerate(model))
    mine = graphs[dist.get_rank() :: dist.get_world_size()]
    with parallel.no_sync():
        parallel(*mine[0]).square().mean().div(len(mine)).backward()
    parallel(*mine[1]).square().mean().div(len(mine)).backward()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    if dist.get_rank() == 0:
        print("gradients agree")
    dist.barrier()  # Gloo's threads let go of the last exchange, while this one does not hold the interpreter's lock
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
